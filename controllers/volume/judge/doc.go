// Package judge says how one PersistentVolume stands towards the profiles that select it. It is pure: whatever it goes by
// is handed in, and it knows neither client nor clock.
//
//	Compile(profiles, allow, pausedAll) *Profiles  // or a Compiler, which remembers
//	Judge(Input) *Judged                           // one volume, alone; or a Memory, which remembers
//	Servers.Judge(*Judged) Verdict                 // among the other volumes of its server
//	AmongOthers(*Judged, others)                   // one that does not exist yet, for the webhook
//	RecordOf, MarkOf, FailedMountOf                // what a volume's annotations tell
package judge
