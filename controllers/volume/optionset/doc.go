// Package optionset implements the life cycle of an option set: the resulting values of the mount options that rules affect, for the volumes of one
// driver, protocol and file system. It is pure. A Record holds the evidence and failures of one set, an Event is one observation, and Next applies it. The state is per server:
// a probe counts for the server that it mounted from, a mount by a pod for all servers.
//
//	Decode(entries) map[string]*Record   // from the entries of the ledger, by set
//	Record.Encode() map[string]string    // its entries, by key
//	Record.Import(Earlier)               // state that an earlier release left on a volume
//	Record.State(server) State
//	Record.Next(Event)
//	Record.MustRestore(server) bool      // whether the volumes that have them get their original options back
//	Record.Counts(failure) bool          // whether a failed mount counts against the set
//
// This table is the complete life cycle of a set. The tests read it from here. An event without a row for a state does not change that state.
// The column "current" is MustRestore. Only in the state Works may more volumes than the canary get the options.
//
//	from                                    | event                  | to                      | current
//	Untried, Canary, Works                  | ProbeOrdered           | Probing                 | keep
//	Untried, Canary, Works                  | ProbeRefused           | Rejected                | keep
//	Untried, Canary                         | ProbeWorked            | Works                   | keep
//	Untried, Canary                         | Mounted                | Works                   | keep
//	Untried                                 | Written                | Canary                  | keep
//	Probing                                 | ProbeRefused           | Rejected                | keep
//	Probing                                 | ProbeWorked            | Works                   | keep
//	Probing                                 | Mounted                | Works                   | keep
//	Probing                                 | ProbeInconclusive      | rest                    | keep
//	Probing, Rejected                       | ProbeUnwanted          | rest                    | keep
//	Rejected                                | ProbeWorked            | Works                   | keep
//	Rejected                                | Mounted                | Works                   | keep
//	Untried, Canary, Works                  | MountFailed            | Suspected               | keep
//	Probing, Rejected                       | MountFailed            | Suspected               | keep
//	Suspected                               | OwnMounted             | Failing                 | restore
//	Suspected with evidence                 | OwnMounted             | Disputed                | keep
//	Suspected                               | OwnFailed              | rest                    | keep
//	Suspected                               | NoPodWaits, VolumeGone | rest                    | keep
//	Suspected by name                       | NoPodWaits, VolumeGone | Failing                 | restore
//	Suspected by name with evidence         | NoPodWaits, VolumeGone | Disputed                | keep
//	Failing                                 | Mounted, ProbeWorked   | Disputed                | keep
//	any                                     | Undeclared             | Untried                 | keep
//
// "With evidence" means that a pod or a probe of this server has mounted the options. "By name" means that the text of the failure names the
// options. "Rest" is the state without the event: Works with evidence, Canary if a volume has the options, Untried otherwise.
//
// Suspected means that the volume gets its original options back. OwnMounted, OwnFailed and NoPodWaits count only after Restored: until then,
// pods may mount the declared options. After OwnUnknown, NoPodWaits does not count: the stop stays until another pod mounts the volume. OwnFailed
// also clears the failure, which then no longer counts. Several volumes may fail at once. Each
// is observed, and the first whose failure the options cause decides. Probing and Canary are not persisted: they follow from current probes
// and volumes.
package optionset
