// Package profile reports the progress of StorageClientProfiles: the nodes and volumes that have the declared values, and the obstacles for the
// others. It keeps a profile that is being deleted until nodes and volumes are restored. It writes only the finalizers and the status of a profile;
// users own spec.
package profile
