// Package ledger keeps a second copy of the records of volumes, in addition to the annotations. Its pages are the ConfigMaps
// storage-client-volumes-N in the manager's namespace. It is pure: callers pass in the pages and write the results.
//
//	Read(pages) *Ledger                    // from the ConfigMaps of the manager's namespace
//	Ledger.EntryOf(uid) *Entry             // the entry of a volume
//	Entry.Recall(current) (Lists, bool)    // the recorded lists that match the volume's current mount options
//	Ledger.Apply(Changes) (writes, unkept) // the pages to write, and the volumes without space
//
// An entry is written twice for each change of a volume's mount options. The first write, before the volume, ensures that the ledger always
// contains the volume's options. The second one follows the write of the volume. Between the two, the entry holds the lists before and after,
// and it holds both after a crash. The volume's annotations change in the same write as its mount options. They take precedence if they are
// complete.
//
// The hash of their UID spreads volumes over the pages. Volumes stay on their page. A page has at most 100 volumes and 64 KiB, and holds equal
// lists once. There are at most 300 pages: a volume without space is not written, and it is reported.
package ledger
