// Package judge evaluates one PersistentVolume against the profiles that select it. It is pure: callers pass all input, and it uses neither a
// client nor a clock.
//
//	Compile(profiles, allow, pausedAll) *Profiles  // or a Compiler, which caches
//	Judge(Input) *Judged                           // one volume, alone; or a Memory, which caches
//	Servers.Judge(*Judged) Verdict                 // among the other volumes of its server
//	EvaluateNew(*Judged, others)                   // a volume that does not exist yet, for the webhook
//	RecordOf, MarkOf, FailedMountOf                // read the annotations of a volume
package judge
