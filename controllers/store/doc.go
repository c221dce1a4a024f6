// Package store keeps what controllers remember of the cluster: a Pool one value for each key, a Memo one for as long as what it was made from
// stays the same, a Pace when something was done last. Pure rooms may use it. It reads nothing: packages read and objects do.
//
// All that is remembered, and what makes it stale. The loss of any of it costs time alone.
//
//	internal/fleet ProfileSets      profiles as checked, their set    another declaration or plan of a profile
//	internal/fleet ProfileSet       merges of settings                is part of one set, which is never changed
//	volume/judge Compiler           profiles as compiled, all of them another declaration, pause of everything, or followed class
//	volume/judge Profiles           merges of options, parts          is part of one version of all profiles
//	volume/judge Memory             volumes as judged                 another version of volume, claim, class, entry, or of a profile concerned
//	volume/ledger Reader            pages as parsed                   another version of the page
//	store clientNodes, volume       equal texts and lists             nothing: they are equal
//	profile, trial, volume, nodevolumes  Pace of the passes           time
//
// What other types remember, since it is no value by a key:
//
//	node/plan Gate                  one look at all nodes             a second; a change of another node; another set of profiles
//	node/plan Patience              since when a state lasts          the state passes
//	node Reconciler                 the last set of profiles          the watch of profiles tells of one: a list for each of thousands of nodes costs more
//	profile clusterReader           one reading for all profiles      the watches tell of a change, and the rest after the reading is over
//	profile pass                    who uses awaited volumes          a minute: Pods are read past the cache
//	volume/judge Memory.last        what differs between two versions another two versions: without it an edit has all volumes judged again
//	volume/judge Others             volumes by server, for webhooks   the watch of volumes tells of one
//	volume Reconciler               refusals, inspections, events     minutes; nothing was written since
//	nodevolumes Reconciler          since when windows are carried    the node carries another
//	trial Reconciler, Results       trials on their way, probes       the trial or the declared list is gone
//	fence Fence, webhook serving    the fence's answer, a certificate seconds; another version of the Secret
//	internal/fleet Snapshot         nodes by profile                  is part of one reading
package store
