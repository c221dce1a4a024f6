// Package store contains caches for controllers. A Pool keeps one value for each key. A Memo keeps a value while its basis is unchanged. A Pace
// keeps the time of the last run. The package does not access the cluster, so packages without side effects may use it.
//
// The following table lists all caches and the events that make them stale. The loss of a cache costs only time.
//
//	internal/fleet ProfileSets      profiles as checked, their set    another declaration or plan of a profile
//	internal/fleet ProfileSet       merges of settings                is part of one set, which is never changed
//	volume/judge Compiler           profiles as compiled, all of them another declaration, global pause, or followed class
//	volume/judge Profiles           merges of options, parts          is part of one version of all profiles
//	volume/judge Memory             evaluated volumes                 another version of volume, claim, class, entry, or of a profile concerned
//	volume/ledger Reader            pages as parsed                   another version of the page
//	store clientNodes, volume       equal strings and lists           never: they are equal
//	profile, and each arm of loop   Pace of the passes                time
//
// State in other types, because it is not a value for a key:
//
//	node/plan Gate                  one evaluation of all nodes       a second; a change of another node; another set of profiles
//	node/plan Patience              start of each state               the end of the state
//	node Reconciler                 the last set of profiles          an event of the profile watch: a list for each of thousands of nodes costs more
//	profile clusterReader           one read for all profiles         a change reported by the watches, after the pause that follows a read
//	profile pass                    pods of awaited volumes           a minute: Pods are read without the cache
//	volume/judge Memory.last        difference between two versions   another two versions: without it, an edit causes an evaluation of all volumes
//	volume/judge VolumeIndex        volumes by server, for webhooks   an event of the volume watch
//	volume Reconciler               rejections, inspections, events   minutes; no write since
//	nodevolumes Reconciler          state of each read-ahead window   another window on the node
//	nodevolumes Reconciler          nodes with a pod of a volume      the node has the window: Pods are read without the cache
//	trial Reconciler, Results       trials in progress, probes        the trial or the declared mount options are gone
//	fence Fence, webhook serving    result of the fence, certificate  30 seconds to an hour; another version of the Secret
//	internal/fleet Snapshot         nodes by profile                  is part of one read
package store
