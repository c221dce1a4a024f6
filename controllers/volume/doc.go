// Package volume brings the mount options that profiles declare to existing PersistentVolumes, and puts the
// volumes' own options back.
//
// Decide is the whole of the judgement and is pure. The Reconciler gathers its Input from the cache and applies the
// Decision in one patch. Summarize and StaleMounts tell a profile's status from the same judgement:
//
//	Reconciler{Client, Recorder, Allow, Namespace}.SetupWithManager(mgr)
//	ReadSnapshot(ctx, reader, allow, namespace) (Snapshot, error)
//	Summarize(profileName, snapshot) Summary
//	StaleMounts(summary.Volumes, storageClientNodes) Stale
//	CacheTransform(object) (any, error) // for the manager's cache of PersistentVolumes
package volume
