// Package uki is systemd-boot with unified kernel images, which the agent's addon reaches. It gets no new features.
package uki

import (
	"bytes"
	"cmp"
	"context"
	"debug/pe"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/argument"
	"github.com/storageclient/operator/agent/host/bootloader/bls"
	"github.com/storageclient/operator/agent/host/bootloader/efi"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
	"github.com/storageclient/operator/tuning/lists"
)

// tool is the tool of unified kernel images, which systemd-boot loads. An image contains its command line, and stays unchanged. The agent's
// addon appends the promoted arguments to the command line of each image, even of an image that is installed later.
//
// The trial is an entry that is booted once. It loads the default image with another command line. Without Secure Boot, systemd-stub uses that line
// instead of the image's own one. The trial therefore needs no copy of a kernel, and a volume that the image's PCR 11 unlocks still opens. The stub also
// appends all addons in a trial. So the addon loses the previous value of an argument when another value is tried.
type tool struct{ efi.Tool }

// all are the places in each directory in which the images can be.
var all = lists.Each(efi.BootDirs, func(boot string) *loader.Place {
	at := efi.PlaceIn(boot)
	at.Title, at.Addon = boot+"/EFI/Linux/*.efi", boot+"/loader/addons/storage-client.addon.efi"
	at.Files = []string{at.Addon}
	return &at
})

const (
	// SecureBoot is the file of the firmware's variable, whose value follows four bytes of attributes.
	SecureBoot = efi.Vars + "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
	// firstAddons is the first release of systemd-stub that reads addons.
	firstAddons = 254
	// PageSize is the alignment of sections in memory, blockSize that in the file, and headerSize is the space for all headers.
	PageSize, blockSize, headerSize = 4096, 512, 1024
	// maxSection limits the size of a section that the agent reads, in bytes.
	maxSection = 64 << 10
)

// stubVersion matches the text by which systemd-stub identifies itself in an image.
var stubVersion = regexp.MustCompile(`LoaderInfo: systemd-stub (\d+)`)

// AddonCode contains, by the type of the machine, the code of an addon, which returns EFI_UNSUPPORTED. No program starts an addon.
var AddonCode = map[uint16]string{
	pe.IMAGE_FILE_MACHINE_AMD64: "\x48\xb8\x03\x00\x00\x00\x00\x00\x00\x80\xc3",
	pe.IMAGE_FILE_MACHINE_ARM64: "\x60\x00\x80\xd2\x00\x00\xf0\xf2\xc0\x03\x5f\xd6",
}

// kernelImage contains the sections of a unified kernel image or an addon that the agent reads, by name. The section ".linux" is empty.
type kernelImage struct {
	machine  uint16
	sections map[string]string
}

// Kind is the kind of unified kernel images.
var Kind = efi.Kind(loader.UKI, true, "booted from a unified kernel image without systemd-boot, so arguments have no trial boot: build the image with the "+
	"argument, or run bootctl install", places, "booted from a unified kernel image, but /efi, /boot and /boot/efi have no EFI/Linux/*.efi: mount the EFI "+
	"partition at /efi", tool{})

// ReadLater implements Tool. The addon reaches later images.
func (tool) ReadLater(bls.Loader, *loader.Facts) error { return nil }

// places returns all places that have images, or files of the agent for them.
func places(fs host.FS) []*loader.Place {
	return slices.DeleteFunc(slices.Clone(all), func(names *loader.Place) bool {
		return len(efi.ImageFiles(fs, names.Boot+"/EFI/Linux", ".efi")) == 0 && !fs.Exists(names.Addon) && !fs.Exists(names.OnceEntry())
	})
}

func readImage(fs host.FS, name string) (image kernelImage, err error) {
	file, err := fs.Open(name)
	if err != nil {
		return image, err
	}
	defer file.Close()
	parsed, err := pe.NewFile(file)
	if err != nil {
		return image, fmt.Errorf("read %s: %w", name, err)
	}
	image = kernelImage{parsed.Machine, map[string]string{}}
	for _, section := range parsed.Sections {
		if section.Name == ".linux" {
			image.sections[section.Name] = ""
		}
		if !slices.Contains([]string{".cmdline", ".osrel", ".profile", ".sdmagic", ".uname"}, section.Name) {
			continue
		}
		if max(section.Size, section.VirtualSize) > maxSection {
			return image, fmt.Errorf("read section %s of %s: larger than %d bytes", section.Name, name, maxSection)
		}
		data, err := section.Data()
		if err != nil {
			return image, fmt.Errorf("read section %s of %s: %w", section.Name, name, err)
		}
		image.sections[section.Name] = strings.TrimRight(string(data[:min(len(data), int(section.VirtualSize))]), "\x00")
	}
	return image, nil
}

// AddonOptions returns the text that addons append to the command line of an image. The image ignores an addon of another kernel.
func addonOptions(fs host.FS, names *loader.Place, file string, image kernelImage) (string, error) {
	var options strings.Builder
	for _, dir := range []string{path.Dir(names.Addon), file + ".extra.d"} {
		for _, name := range efi.ImageFiles(fs, dir, ".addon.efi") {
			addon, err := readImage(fs, name)
			if name == names.Addon && errors.Is(err, io.EOF) {
				// On VFAT, a power cut can leave it empty. systemd-stub ignores it (load_addons of stub.c), and the next change replaces it.
				continue
			} else if err != nil {
				return "", err
			}
			_, isKernel := addon.sections[".linux"]
			if of, ok := addon.sections[".uname"]; !isKernel && (!ok || of == image.sections[".uname"] || image.sections[".uname"] == "") {
				options.WriteString(" " + addon.sections[".cmdline"])
			}
		}
	}
	return options.String(), nil
}

// imageEntry is the entry that systemd-boot makes of an image.
type imageEntry struct {
	*loader.Entry
	image kernelImage
}

// imageOf returns the image of an entry. Without sections if the entry is of no image.
func imageOf(images []imageEntry, entry *loader.Entry) kernelImage {
	for _, image := range images {
		if image.Entry == entry {
			return image.image
		}
	}
	return kernelImage{}
}

// readImages returns the entries that systemd-boot makes of the images, or the reason why one cannot be read, e.g. while it is installed. The text of an
// entry has the form of the other entries. A managed argument that is also in an image counts only in the addon: the agent cannot remove it from the
// image.
func readImages(b bls.Loader) (images []imageEntry, reason string) {
	managed := b.ManagedSinceBoot(b.At.Form)
	for _, file := range efi.ImageFiles(b.FS, b.At.Boot+"/EFI/Linux", ".efi") {
		image, err := readImage(b.FS, file)
		added := ""
		if err == nil {
			added, err = addonOptions(b.FS, b.At, file, image)
		}
		if err != nil {
			reason = err.Error() + ": wait until it is installed, or remove it"
			continue
		}
		value := func(name string) string { return loader.ReleaseValue(image.sections[".osrel"], name) }
		key := cmp.Or(value("IMAGE_ID"), value("ID"))
		if key == "" {
			// systemd-boot does not show it.
			continue
		}
		if !argument.HasName(host.ParseArguments(image.sections[".cmdline"]+added+" "+bls.Appended), bls.Appended) {
			reason = file + " has arguments for init after --, or an open quote, so an addon has no effect: build the image with the argument"
		}
		name, kernel := path.Base(file), strings.TrimPrefix(file, b.At.Boot)
		options := strings.TrimSpace(controls.ReplaceAllString(image.sections[".cmdline"], " "))
		args := argument.Without(host.ParseArguments(options), managed)
		images = append(images, imageEntry{image: image, Entry: &loader.Entry{
			ID: name[:len(name)-len(".efi")], Section: path.Dir(file), File: file,
			Text: fmt.Sprintf("sort-key %s\nversion %s\nefi %s\noptions %s\n", key,
				cmp.Or(value("IMAGE_VERSION"), value("VERSION"), value("VERSION_ID"), value("BUILD_ID")), kernel, options),
			Lines: []loader.Line{{ID: name, Title: name, Kernel: kernel, Args: append(args, argument.Without(host.ParseArguments(added), args)...)}},
		}})
	}
	return images, reason
}

var controls = regexp.MustCompile(`[\x00-\x1f]`)

// ReadBooted implements Tool. The menu has the lines of all images.
func (t tool) ReadBooted(b bls.Loader) (loader.Booted, string) {
	m, _, reason := t.readAll(b)
	return m, reason
}

// readAll also returns the images.
func (t tool) readAll(b bls.Loader) (m loader.Booted, images []imageEntry, reason string) {
	m = loader.Booted{Names: b.At, Reported: true}
	entries, err := b.ReadEntries()
	if err != nil {
		return m, nil, err.Error()
	}
	images, unread := readImages(b)
	for _, image := range images {
		m.Menu.Lines = append(m.Menu.Lines, image.Lines...)
		entries = append(entries, image.Entry)
	}
	slices.SortStableFunc(entries, t.Compare)
	m.Menu.Root.Children = entries
	m.Entry, reason = t.DefaultEntry(b, entries)
	if reason = cmp.Or(unread, reason); reason == "" {
		reason = cmp.Or(t.MenuObstacle(b, m, places(b.FS)), t.findObstacle(b, m, images))
	}
	return m, images, reason
}

// findObstacle returns the reason why the addon does not reach all images, or would reach more, and the remedy.
func (tool) findObstacle(b bls.Loader, m loader.Booted, images []imageEntry) string {
	booted := imageOf(images, m.Entry)
	state, err := b.FS.ReadFile(SecureBoot)
	selected, _ := efi.Variable(b.FS, "LoaderEntrySelected")
	rebuild := ": build and sign the image with the argument, or an addon (ukify build --cmdline=...)"
	switch {
	case err != nil || len(state) != 5:
		return "booted from a unified kernel image, and " + SecureBoot + " does not show whether Secure Boot is on" + rebuild
	case state[4] != 0:
		return "booted from a unified kernel image with Secure Boot, which rejects an addon or a command line without a signature" + rebuild
	case booted.sections == nil:
		return "the default entry " + m.Entry.File + " is not a unified kernel image, unlike the entry that was booted: run bootctl set-default with an image"
	case selected != bls.OnceID+".conf" && !strings.HasSuffix(selected, ".efi"):
		return fmt.Sprintf("systemd-boot loaded the running kernel by entry %q, which is not a unified kernel image: %s", selected, loader.OtherMenu)
	}
	for _, entry := range images {
		_, hasProfiles := entry.image.sections[".profile"]
		version := stubVersion.FindStringSubmatch(entry.image.sections[".sdmagic"])
		release := 0
		if version != nil {
			// The expression matches only digits.
			release, _ = strconv.Atoi(version[1])
		}
		switch {
		case release < firstAddons:
			return fmt.Sprintf("%s was not built with systemd-stub %d or newer, which reads addons: build it with that, or remove it", entry.File, firstAddons)
		case hasProfiles:
			return entry.File + " has several profiles, and the default one is unknown: build the image with the argument"
		case AddonCode[entry.image.machine] == "" || entry.image.machine != booted.machine:
			return entry.File + " is for another type of machine: remove it"
		case efi.EntryField(entry.Entry, "sort-key") != efi.EntryField(m.Entry, "sort-key"):
			return "an addon would also reach " + entry.File + " of another system: build the images with the argument"
		}
	}
	return ""
}

// ReadMenu implements Tool.
func (t tool) ReadMenu(_ context.Context, b bls.Loader) (loader.Menu, error) {
	booted, _ := t.ReadBooted(b)
	return loader.Menu{Whole: true, Lines: booted.Menu.Lines}, nil
}

// FindTrialObstacle implements Tool like systemd-boot. An image that is being installed is a temporary obstacle.
func (t tool) FindTrialObstacle(ctx context.Context, b bls.Loader) (reason string, temporary bool) {
	reason, temporary = t.Tool.FindTrialObstacle(ctx, b)
	_, unread := readImages(b)
	return reason, temporary || unread != ""
}

// Change implements Tool. The addon has its previous or its next content at any time. It keeps arguments that the agent does not manage.
func (t tool) Change(_ context.Context, b bls.Loader, _ loader.Facts, next loader.Change, before map[string]host.SavedFile) error {
	var args []host.Argument
	if !bls.IsEmpty(before[b.At.Addon]) {
		addon, err := readImage(b.FS, b.At.Addon)
		if err != nil && len(next.Desired) > 0 {
			return err
		}
		args = argument.Without(host.ParseArguments(addon.sections[".cmdline"]), next.Stale)
	}
	args = append(args, argument.Without(next.Desired, args)...)
	if len(args) == 0 {
		return b.FS.Remove(b.At.Addon)
	}
	booted, images, reason := t.readAll(b)
	image := imageOf(images, booted.Entry)
	if booted.Entry == nil || image.sections == nil {
		return errors.New("the default entry is not a unified kernel image: " + reason)
	}
	data, err := RenderImage(image.machine, []ImageSection{
		{".text", AddonCode[image.machine], pe.IMAGE_SCN_CNT_CODE | pe.IMAGE_SCN_MEM_EXECUTE | pe.IMAGE_SCN_MEM_READ},
		{".cmdline", argument.Join(args), pe.IMAGE_SCN_CNT_INITIALIZED_DATA | pe.IMAGE_SCN_MEM_READ},
	})
	if err != nil {
		return err
	}
	return b.FS.KeepFile(b.At.Addon, string(data))
}

// ImageSection is a section of an image.
type ImageSection struct {
	Name, Data string
	flags      uint32
}

// RenderImage returns a program of the firmware in the PE format, with the headers of systemd's own addons. Each section fits in a page, and the first
// is the code.
func RenderImage(machine uint16, sections []ImageSection) ([]byte, error) {
	header := pe.OptionalHeader64{
		Magic: 0x20b, AddressOfEntryPoint: PageSize, BaseOfCode: PageSize, SizeOfCode: uint32(len(sections[0].Data)), ImageBase: 1 << 32,
		SectionAlignment: PageSize, FileAlignment: blockSize, MajorSubsystemVersion: 1, MinorSubsystemVersion: 1,
		SizeOfImage: PageSize, SizeOfHeaders: headerSize, Subsystem: pe.IMAGE_SUBSYSTEM_EFI_APPLICATION,
		DllCharacteristics: pe.IMAGE_DLLCHARACTERISTICS_HIGH_ENTROPY_VA | pe.IMAGE_DLLCHARACTERISTICS_DYNAMIC_BASE | pe.IMAGE_DLLCHARACTERISTICS_NX_COMPAT,
		SizeOfStackReserve: 1 << 20, SizeOfStackCommit: PageSize, SizeOfHeapReserve: 1 << 20, SizeOfHeapCommit: PageSize, NumberOfRvaAndSizes: 16,
	}
	var table []pe.SectionHeader32
	var content []byte
	for _, section := range sections {
		size := uint32(len(section.Data))
		if size > PageSize {
			return nil, fmt.Errorf("section %s has more than %d bytes", section.Name, PageSize)
		}
		entry := pe.SectionHeader32{VirtualSize: size, VirtualAddress: header.SizeOfImage, SizeOfRawData: (size + blockSize - 1) / blockSize * blockSize,
			PointerToRawData: headerSize + uint32(len(content)), Characteristics: section.flags}
		copy(entry.Name[:], section.Name)
		table = append(table, entry)
		content = append(append(content, section.Data...), make([]byte, entry.SizeOfRawData-size)...)
		header.SizeOfImage += PageSize
	}
	header.SizeOfInitializedData = header.SizeOfImage - 2*PageSize
	var b bytes.Buffer
	// The header of MS-DOS ends with the offset of the next header.
	b.WriteString("MZ" + strings.Repeat("\x00", 58) + "\x40\x00\x00\x00" + "PE\x00\x00")
	err := errors.Join(binary.Write(&b, binary.LittleEndian, pe.FileHeader{
		Machine: machine, NumberOfSections: uint16(len(sections)), SizeOfOptionalHeader: uint16(binary.Size(header)),
		Characteristics: pe.IMAGE_FILE_EXECUTABLE_IMAGE | pe.IMAGE_FILE_LINE_NUMS_STRIPPED | pe.IMAGE_FILE_LOCAL_SYMS_STRIPPED |
			pe.IMAGE_FILE_LARGE_ADDRESS_AWARE | pe.IMAGE_FILE_DEBUG_STRIPPED,
	}), binary.Write(&b, binary.LittleEndian, header), binary.Write(&b, binary.LittleEndian, table))
	b.Write(make([]byte, headerSize-b.Len()))
	return append(b.Bytes(), content...), err
}
