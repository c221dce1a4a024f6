// Package webhook handles admission requests of the API server. It reports errors in a profile to its author before the profile is stored. It
// also merges declared mount options into a PersistentVolume before its first mount. It creates and renews its serving certificate.
//
// No other component depends on it. Controllers validate a profile that bypassed it. The volume reconciler evaluates a volume that bypassed
// it, with the same code.
package webhook
