package bootloader

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
	"github.com/storageclient/operator/tuning/lists"
)

// kernelImages is the tool of unified kernel images, which systemd-boot loads. An image contains its command line, and stays unchanged. The agent's
// addon appends the promoted arguments to the command line of each image, even of an image that is installed later.
//
// The trial is an entry that is booted once. It loads the default image with another command line. Without Secure Boot, systemd-stub uses that line
// instead of the image's own one. The trial therefore needs no copy of a kernel, and a volume that the image's PCR 11 unlocks still opens. The stub also
// appends all addons in a trial. So the addon loses the previous value of an argument when another value is tried.
type kernelImages struct{ efiTool }

// imageNames are the names for each directory in which the images can be.
var imageNames = lists.Each(bootDirs, func(boot string) *grubNames {
	at := efiNames(boot)
	at.title, at.addon = boot+"/EFI/Linux/*.efi", boot+"/loader/addons/storage-client.addon.efi"
	at.files = []string{at.addon}
	return &at
})

const (
	noImages = "booted from a unified kernel image, but /efi, /boot and /boot/efi have no EFI/Linux/*.efi: mount the EFI partition at /efi"
	// secureBoot is the file of the firmware's variable, whose value follows four bytes of attributes.
	secureBoot = efiVars + "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
	// firstAddons is the first release of systemd-stub that reads addons.
	firstAddons = 254
	// pageSize is the alignment of sections in memory, blockSize that in the file, and headerSize is the space for all headers.
	pageSize, blockSize, headerSize = 4096, 512, 1024
	// maxSection limits the size of a section that the agent reads, in bytes.
	maxSection = 64 << 10
)

// stubVersion matches the text by which systemd-stub identifies itself in an image.
var stubVersion = regexp.MustCompile(`LoaderInfo: systemd-stub (\d+)`)

// addonCode contains, by the type of the machine, the code of an addon, which returns EFI_UNSUPPORTED. No program starts an addon.
var addonCode = map[uint16]string{
	pe.IMAGE_FILE_MACHINE_AMD64: "\x48\xb8\x03\x00\x00\x00\x00\x00\x00\x80\xc3",
	pe.IMAGE_FILE_MACHINE_ARM64: "\x60\x00\x80\xd2\x00\x00\xf0\xf2\xc0\x03\x5f\xd6",
}

// kernelImage contains the sections of a unified kernel image or an addon that the agent reads, by name. The section ".linux" is empty.
type kernelImage struct {
	machine  uint16
	sections map[string]string
}

// ImageKind is the kind of unified kernel images.
var ImageKind = Kind{
	Detect: func(fs host.FS) (Detection, *grubNames) {
		info, err := efiVariable(fs, "LoaderInfo")
		places := imagePlaces(fs)
		switch {
		case !isImage(fs):
			return Detection{}, nil
		case err != nil || !strings.Contains(info, "systemd-boot"):
			return unsupportedBy("booted from a unified kernel image without systemd-boot, so arguments have no trial boot: build the image with the argument, " +
				"or run bootctl install"), nil
		case len(places) == 0:
			return unsupportedBy(noImages), nil
		}
		return Detection{Type: UKI, Proven: true}, places[0]
	},
	Places: imagePlaces,
	Open:   func(b base) loader { return entryLoader{base: b, tool: kernelImages{}} },
}

// readLater implements entryTool. The addon reaches later images.
func (kernelImages) readLater(entryLoader, *facts) error { return nil }

// imagePlaces returns the names of all directories that have images, or files of the agent for them.
func imagePlaces(fs host.FS) []*grubNames {
	return slices.DeleteFunc(slices.Clone(imageNames), func(names *grubNames) bool {
		return len(imageFiles(fs, names.boot+"/EFI/Linux", ".efi")) == 0 && !fs.Exists(names.addon) && !fs.Exists(names.onceEntry())
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

// addonOptions returns the text that addons append to the command line of an image. The image ignores an addon of another kernel.
func addonOptions(fs host.FS, names *grubNames, file string, image kernelImage) (string, error) {
	var options strings.Builder
	for _, dir := range []string{path.Dir(names.addon), file + ".extra.d"} {
		for _, name := range imageFiles(fs, dir, ".addon.efi") {
			addon, err := readImage(fs, name)
			if name == names.addon && errors.Is(err, io.EOF) {
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
	*menuEntry
	image kernelImage
}

// imageOf returns the image of an entry. Without sections if the entry is of no image.
func imageOf(images []imageEntry, entry *menuEntry) kernelImage {
	for _, image := range images {
		if image.menuEntry == entry {
			return image.image
		}
	}
	return kernelImage{}
}

// readImages returns the entries that systemd-boot makes of the images, or the reason why one cannot be read, e.g. while it is installed. The text of an
// entry has the form of the other entries. A managed argument that is also in an image counts only in the addon: the agent cannot remove it from the
// image.
func readImages(b entryLoader) (images []imageEntry, reason string) {
	managed := b.managedSinceBoot(b.at.form)
	for _, file := range imageFiles(b.fs, b.at.boot+"/EFI/Linux", ".efi") {
		image, err := readImage(b.fs, file)
		added := ""
		if err == nil {
			added, err = addonOptions(b.fs, b.at, file, image)
		}
		if err != nil {
			reason = err.Error() + ": wait until it is installed, or remove it"
			continue
		}
		value := func(name string) string { return releaseValue(image.sections[".osrel"], name) }
		key := cmp.Or(value("IMAGE_ID"), value("ID"))
		if key == "" {
			// systemd-boot does not show it.
			continue
		}
		if !hasName(host.ParseArguments(image.sections[".cmdline"]+added+" "+appended), appended) {
			reason = file + " has arguments for init after --, or an open quote, so an addon has no effect: build the image with the argument"
		}
		name, kernel := path.Base(file), strings.TrimPrefix(file, b.at.boot)
		options := strings.TrimSpace(controls.ReplaceAllString(image.sections[".cmdline"], " "))
		args := argumentsWithout(host.ParseArguments(options), managed)
		images = append(images, imageEntry{image: image, menuEntry: &menuEntry{
			id: name[:len(name)-len(".efi")], section: path.Dir(file), file: file,
			text: fmt.Sprintf("sort-key %s\nversion %s\nefi %s\noptions %s\n", key,
				cmp.Or(value("IMAGE_VERSION"), value("VERSION"), value("VERSION_ID"), value("BUILD_ID")), kernel, options),
			lines: []bootLine{{id: name, title: name, kernel: kernel, args: append(args, argumentsWithout(host.ParseArguments(added), args)...)}},
		}})
	}
	return images, reason
}

var controls = regexp.MustCompile(`[\x00-\x1f]`)

// readBooted implements entryTool. The menu has the lines of all images.
func (t kernelImages) readBooted(b entryLoader) (bootedMenu, string) {
	m, _, reason := t.readAll(b)
	return m, reason
}

// readAll also returns the images.
func (t kernelImages) readAll(b entryLoader) (m bootedMenu, images []imageEntry, reason string) {
	m = bootedMenu{names: b.at, reported: true}
	entries, err := b.readEntries()
	if err != nil {
		return m, nil, err.Error()
	}
	images, unread := readImages(b)
	for _, image := range images {
		m.menu.lines = append(m.menu.lines, image.lines...)
		entries = append(entries, image.menuEntry)
	}
	slices.SortStableFunc(entries, t.compare)
	m.menu.root.children = entries
	m.entry, reason = t.defaultEntry(b, entries)
	if reason = cmp.Or(unread, reason); reason == "" {
		reason = cmp.Or(t.menuObstacle(b, m, imagePlaces(b.fs)), t.findObstacle(b, m, images))
	}
	return m, images, reason
}

// findObstacle returns the reason why the addon does not reach all images, or would reach more, and the remedy.
func (kernelImages) findObstacle(b entryLoader, m bootedMenu, images []imageEntry) string {
	booted := imageOf(images, m.entry)
	state, err := b.fs.ReadFile(secureBoot)
	selected, _ := efiVariable(b.fs, "LoaderEntrySelected")
	rebuild := ": build and sign the image with the argument, or an addon (ukify build --cmdline=...)"
	switch {
	case err != nil || len(state) != 5:
		return "booted from a unified kernel image, and " + secureBoot + " does not show whether Secure Boot is on" + rebuild
	case state[4] != 0:
		return "booted from a unified kernel image with Secure Boot, which rejects an addon or a command line without a signature" + rebuild
	case booted.sections == nil:
		return "the default entry " + m.entry.file + " is not a unified kernel image, unlike the entry that was booted: run bootctl set-default with an image"
	case selected != onceID+".conf" && !strings.HasSuffix(selected, ".efi"):
		return fmt.Sprintf("systemd-boot loaded the running kernel by entry %q, which is not a unified kernel image: %s", selected, otherMenu)
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
			return fmt.Sprintf("%s was not built with systemd-stub %d or newer, which reads addons: build it with that, or remove it", entry.file, firstAddons)
		case hasProfiles:
			return entry.file + " has several profiles, and the default one is unknown: build the image with the argument"
		case addonCode[entry.image.machine] == "" || entry.image.machine != booted.machine:
			return entry.file + " is for another type of machine: remove it"
		case entryField(entry.menuEntry, "sort-key") != entryField(m.entry, "sort-key"):
			return "an addon would also reach " + entry.file + " of another system: build the images with the argument"
		}
	}
	return ""
}

func (t kernelImages) readMenu(_ context.Context, b entryLoader) (menu, error) {
	booted, _ := t.readBooted(b)
	return menu{whole: true, lines: booted.menu.lines}, nil
}

// findTrialObstacle implements entryTool like systemd-boot. An image that is being installed is a temporary obstacle.
func (t kernelImages) findTrialObstacle(ctx context.Context, b entryLoader) (reason string, temporary bool) {
	reason, temporary = t.efiTool.findTrialObstacle(ctx, b)
	_, unread := readImages(b)
	return reason, temporary || unread != ""
}

// change implements entryTool. The addon has its previous or its next content at any time. It keeps arguments that the agent does not manage.
func (t kernelImages) change(_ context.Context, b entryLoader, _ facts, next change, before map[string]host.SavedFile) error {
	var args []host.Argument
	if !isEmpty(before[b.at.addon]) {
		addon, err := readImage(b.fs, b.at.addon)
		if err != nil && len(next.desired) > 0 {
			return err
		}
		args = argumentsWithout(host.ParseArguments(addon.sections[".cmdline"]), next.stale)
	}
	args = append(args, argumentsWithout(next.desired, args)...)
	if len(args) == 0 {
		return b.fs.Remove(b.at.addon)
	}
	booted, images, reason := t.readAll(b)
	image := imageOf(images, booted.entry)
	if booted.entry == nil || image.sections == nil {
		return errors.New("the default entry is not a unified kernel image: " + reason)
	}
	data, err := renderImage(image.machine, []imageSection{
		{".text", addonCode[image.machine], pe.IMAGE_SCN_CNT_CODE | pe.IMAGE_SCN_MEM_EXECUTE | pe.IMAGE_SCN_MEM_READ},
		{".cmdline", joinArguments(args), pe.IMAGE_SCN_CNT_INITIALIZED_DATA | pe.IMAGE_SCN_MEM_READ},
	})
	if err != nil {
		return err
	}
	return b.fs.KeepFile(b.at.addon, string(data))
}

type imageSection struct {
	name, data string
	flags      uint32
}

// renderImage returns a program of the firmware in the PE format, with the headers of systemd's own addons. Each section fits in a page, and the first
// is the code.
func renderImage(machine uint16, sections []imageSection) ([]byte, error) {
	header := pe.OptionalHeader64{
		Magic: 0x20b, AddressOfEntryPoint: pageSize, BaseOfCode: pageSize, SizeOfCode: uint32(len(sections[0].data)), ImageBase: 1 << 32,
		SectionAlignment: pageSize, FileAlignment: blockSize, MajorSubsystemVersion: 1, MinorSubsystemVersion: 1,
		SizeOfImage: pageSize, SizeOfHeaders: headerSize, Subsystem: pe.IMAGE_SUBSYSTEM_EFI_APPLICATION,
		DllCharacteristics: pe.IMAGE_DLLCHARACTERISTICS_HIGH_ENTROPY_VA | pe.IMAGE_DLLCHARACTERISTICS_DYNAMIC_BASE | pe.IMAGE_DLLCHARACTERISTICS_NX_COMPAT,
		SizeOfStackReserve: 1 << 20, SizeOfStackCommit: pageSize, SizeOfHeapReserve: 1 << 20, SizeOfHeapCommit: pageSize, NumberOfRvaAndSizes: 16,
	}
	var table []pe.SectionHeader32
	var content []byte
	for _, section := range sections {
		size := uint32(len(section.data))
		if size > pageSize {
			return nil, fmt.Errorf("section %s has more than %d bytes", section.name, pageSize)
		}
		entry := pe.SectionHeader32{VirtualSize: size, VirtualAddress: header.SizeOfImage, SizeOfRawData: (size + blockSize - 1) / blockSize * blockSize,
			PointerToRawData: headerSize + uint32(len(content)), Characteristics: section.flags}
		copy(entry.Name[:], section.name)
		table = append(table, entry)
		content = append(append(content, section.data...), make([]byte, entry.SizeOfRawData-size)...)
		header.SizeOfImage += pageSize
	}
	header.SizeOfInitializedData = header.SizeOfImage - 2*pageSize
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
