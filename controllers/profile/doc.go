// Package profile reports on StorageClientProfiles: how far nodes and volumes carry what they declare, and what
// they wait for. It keeps a profile that is being deleted until nodes and volumes are restored. It writes a profile's
// finalizers and status and nothing else; spec is the user's.
package profile
