// Package judge evaluates one PersistentVolume against the profiles that select it. It is pure: callers pass all input, and it uses neither a
// client nor a clock.
//
//	Compile(profiles, allow, pausedAll) *Profiles  // or a Compiler, which caches
//	Evaluate(Input) *Evaluation                    // one volume, alone; or a Memory, which caches
//	Servers.Evaluate(*Evaluation) Verdict          // among the other volumes of its server
//	EvaluateNew(*Evaluation, index, find)          // a volume that does not exist yet, for the webhook
//	RecordOf, MarkOf, FailedMountOf                // read the annotations of a volume
package judge
