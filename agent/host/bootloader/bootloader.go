// Package bootloader lists the boot loaders in which the agent passes arguments to the kernel at boot:
//
//   - grub: GRUB of Debian, Ubuntu and Azure Linux. The agent stages arguments. It writes a drop-in that appends them, makes a menu from it, and
//     verifies that menu before it replaces the present one. If GRUB can write to its environment block, it tries the arguments once. It
//     then returns to the previous entry, unless an agent has reported since that the machine is up.
//   - grubentries: GRUB with boot loader specification entries. The agent tries the arguments in an entry that GRUB boots once. Then grubby changes the
//     other entries. The agent verifies them, and keeps the previous files byte by byte.
//   - systemdboot: systemd-boot with entries that kernel-install writes. The agent edits the options of these entries.
//   - uki: unified kernel images of systemd-boot, without Secure Boot. The agent tries the arguments in an entry that systemd-boot boots once. The entry
//     loads the default image with another command line. Then an addon appends the arguments to the command lines of all images.
//   - Any other boot loader: the agent reports the boot loader and the tool to use instead.
//
// To remove a boot loader, delete its folder and its line in Kinds.
package bootloader

import (
	"github.com/storageclient/operator/agent/host/bootloader/grub"
	"github.com/storageclient/operator/agent/host/bootloader/grubentries"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
	"github.com/storageclient/operator/agent/host/bootloader/systemdboot"
	"github.com/storageclient/operator/agent/host/bootloader/uki"
)

// Kinds are all boot loaders, in the order in which Detect tries them.
var Kinds = []loader.Kind{systemdboot.Kind, uki.Kind, grub.Debian, grubentries.Kind, grub.Grub2}
