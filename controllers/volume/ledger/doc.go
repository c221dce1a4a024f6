// Package ledger keeps the records of volumes a second time, beside the annotations: in the ConfigMaps storage-client-volumes-N of
// the manager's namespace, its pages. It is pure: pages are handed in, and what is to be written is handed out.
//
//	Read(pages) *Ledger                  // from the ConfigMaps of the manager's namespace
//	Ledger.EntryOf(uid) *Entry           // what it holds of a volume
//	Entry.Recall(current) (Lists, bool)  // which lists it remembers, by what the volume has now
//	Ledger.Apply(Changes) Result         // the pages to write, and what could not be kept
//
// An entry is written twice for each list that a volume gets: before the volume, so that a list that stands there is always known,
// and after it. In between it holds the lists before and after, and whoever dies there leaves both. The volume's annotations, which
// change in one write with its list, have the last word as long as they are whole.
//
// Volumes are spread over the pages by the hash of their UID, and stay where they are once they stand there. A page has at most 100
// volumes and 64 KiB, and equal lists once. There are at most 300 pages: a volume that finds no room is not written, and named.
package ledger
