// Package webhook answers the API server's questions at admission: it tells the author of a profile what is wrong with
// it before it is stored, and lays declared mount options over a PersistentVolume before its first mount. It also
// makes and renews the certificate that it serves with.
//
// Nothing rests on it. A profile that was stored past it is validated again by the controllers, and a volume that was
// created past it is taken up by the volume reconciler, which shares its judgement.
package webhook
