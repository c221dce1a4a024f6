package bootloader

// Kinds are all boot loaders, in the order in which Detect tries them.
var Kinds = []Kind{SystemdKind, ImageKind, Debian, GrubbyKind, Grub2}
