package bootloader

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
)

const (
	imagesDir   = "/efi/EFI/Linux"
	newestImage = imagesDir + "/" + systemdToken + "-6.12.9-amd64.efi"
	olderImage  = imagesDir + "/" + systemdToken + "-6.12.8-amd64.efi"
	ukiAddon    = "/efi/loader/addons/storage-client.addon.efi"
	debianOS    = "PRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\nID=debian\nVERSION=\"13 (trixie)\"\n"
)

// newUKI is a host with two unified kernel images, as kernel-install 257 names them. An agent runs after each boot.
func newUKI(t *testing.T) *machine {
	t.Helper()
	m := newSystemdBoot(t)
	m.remove(systemdEntries)
	m.remove("/efi/" + systemdToken)
	m.kernel = newestImage
	m.installImage("6.12.8-amd64", nil)
	m.installImage("6.12.9-amd64", nil)
	m.setVariable("StubInfo", "systemd-stub 257.9-1~deb13u1")
	m.write(secureBoot, "\x06\x00\x00\x00\x00")
	m.startEntry()
	return m
}

// installImage writes an image like ukify, with the arguments of later kernels. changed replaces sections; an empty section is left out.
func (m *machine) installImage(version string, changed map[string]string) (file string) {
	m.t.Helper()
	file = imagesDir + "/" + systemdToken + "-" + version + ".efi"
	m.writeImage(file, version, changed)
	return file
}

func part(name, data string) imageSection { return imageSection{name: name, data: data} }

func (m *machine) writeImage(file, version string, changed map[string]string) {
	m.t.Helper()
	sections := []imageSection{part(".text", "code")}
	for _, s := range [][2]string{
		{".sdmagic", "#### LoaderInfo: systemd-stub 257.9-1~deb13u1 ####"}, {".osrel", debianOS}, {".cmdline", strings.TrimSpace(m.read(kernelCmdline))},
		{".uname", version}, {".linux", "kernel " + version}, {".profile", ""},
	} {
		data, ok := changed[s[0]]
		if !ok {
			data = s[1]
		}
		if data != "" {
			sections = append(sections, part(s[0], data))
		}
	}
	data, err := renderImage(pe.IMAGE_FILE_MACHINE_AMD64, sections)
	if err != nil {
		m.t.Fatal(err)
	}
	m.write(file, string(data))
}

func (m *machine) hasImages() bool { return strings.HasSuffix(m.kernel, ".efi") }

// section returns the text of a section of a file.
func (m *machine) section(file, name string) string {
	m.t.Helper()
	image, err := pe.Open(filepath.Join(m.dir, file))
	if err != nil {
		m.t.Fatal(err)
	}
	defer image.Close()
	section := image.Section(name)
	if section == nil {
		return ""
	}
	data, err := section.Data()
	if err != nil {
		m.t.Fatal(err)
	}
	return string(data[:section.VirtualSize])
}

// addonOptions returns the command line of the agent's addon.
func (m *machine) addonOptions() string {
	m.t.Helper()
	if !m.fs.Exists(ukiAddon) {
		return ""
	}
	return m.section(ukiAddon, ".cmdline")
}

// stubOptions returns the command line that systemd-stub gives to the kernel: its load options, or else the command line of the image, and then the addons.
func (m *machine) stubOptions(image, options string) string {
	m.t.Helper()
	parts := []string{options}
	if options == "" {
		parts = []string{m.section(image, ".cmdline")}
	}
	for _, dir := range []string{"/efi/loader/addons", image + ".extra.d"} {
		addons, err := m.fs.Glob(dir, "*.addon.efi")
		if err != nil {
			m.t.Fatal(err)
		}
		for _, addon := range addons {
			if strings.Trim(m.read(addon), "\x00") == "" {
				// A power cut has emptied it. The stub ignores a file that it cannot load.
				continue
			}
			if uname := m.section(addon, ".uname"); uname == "" || uname == m.section(image, ".uname") {
				parts = append(parts, m.section(addon, ".cmdline"))
			}
		}
	}
	return strings.Join(parts, " ")
}

func TestAnArgumentReachesUnifiedKernelImagesOnlyAfterItsTrial(t *testing.T) {
	m := newUKI(t)
	before := m.bootFiles()
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.Pending, "trial boot")
	if found := m.subject.Detect(); found.Type != UKI || !found.MayReboot() {
		t.Errorf("not rebooted: %+v", found)
	}
	want := stateMark + trialArmed + "\ntitle " + onceTitle + "\nversion 0\nefi /EFI/Linux/" + path.Base(newestImage) + "\noptions " + systemdArgs + " " + ihashSeed + "\n"
	if diff := cmp.Diff(want, m.read(systemdOnce)); diff != "" {
		t.Errorf("entry (-want +got):\n%s", diff)
	}
	m.expectInDefaults(ihashSeed, false)
	// An image that is installed before the promotion boots without the argument.
	newer := m.installImage("6.13.1-amd64", nil)
	m.apply(settings(ihash, seed))
	if !strings.Contains(m.read(systemdOnce), path.Base(newer)) {
		t.Errorf("the trial is not that of the new default image:\n%s", m.read(systemdOnce))
	}
	m.prepareReboot()
	if name := m.startEntry(); name != onceID {
		t.Errorf("booted %s", name)
	}
	m.expectInDefaults(ihashSeed, false)
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.InSync)
	m.expectInDefaults(ihashSeed, true)
	if m.fs.Exists(systemdOnce) || m.oneShot() != "" {
		t.Error("the trial is left")
	}
	// A later one has it.
	later := m.installImage("6.13.2-amd64", nil)
	if name := m.startEntry(); name != path.Base(later) || !strings.Contains(m.read(commandLine), ihashSeed) {
		t.Errorf("booted %s with %s", name, m.read(commandLine))
	}
	m.apply(settings(ihash, seed))
	if got := m.observe(ihash, seed); got.State != host.InSync || got.Message != "" {
		t.Errorf("got %+v", got)
	}
	m.remove(ukiAddon)
	expect(t, m.observe(ihash, seed), host.Drifted, "the next boot will not pass it")
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.InSync)
	m.expectInDefaults(ihashSeed, true)
	// An image with the argument keeps it.
	m.write(kernelCmdline, systemdArgs+" "+ihashSeed+"\n")
	m.installImage("6.13.3-amd64", nil)
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.InSync)
	m.apply(nil)
	expect(t, m.restore(ihash, host.Original{}), host.Pending, "until the next reboot")
	m.write(kernelCmdline, systemdArgs+"\n")
	after := m.bootFiles()
	for name := range after {
		if strings.Contains(name, "6.13.") {
			delete(after, name)
		}
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("after restore (-before +after):\n%s", diff)
	}
	m.startEntry()
	expect(t, m.restore(ihash, host.Original{}), host.InSync, "set by another program")
}

func TestAPanicReturnsToTheDefaultImage(t *testing.T) {
	m := newUKI(t)
	before := m.bootFiles()
	bad := settings(panicArgument, "/missing")
	m.apply(bad)
	m.prepareReboot()
	if name := m.startEntry(); name != path.Base(newestImage) {
		t.Errorf("booted %s", name)
	}
	m.apply(bad)
	expect(t, m.observe(panicArgument, "/missing"), host.Failed, "trial boot failed")
	m.expectInDefaults(panicArgument+"=/missing", false)
	m.apply(nil)
	if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
		t.Errorf("after restore (-before +after):\n%s", diff)
	}
}

// An addon can only append. The default images therefore lose the previous value when the next one has its trial, and nothing else.
func TestAnotherValueOfAnArgumentInAnAddon(t *testing.T) {
	m := newUKI(t)
	before := m.bootFiles()
	for range 2 {
		m.apply(settings("audit", "0", hugepage, "never"))
		m.startEntry()
	}
	if got := m.addonOptions(); got != "audit=0 "+hugepage+"=never" {
		t.Errorf("the addon has %q", got)
	}
	m.apply(settings("audit", "0", hugepage, "madvise"))
	expect(t, m.observe(hugepage, "madvise"), host.Pending, "trial boot")
	expect(t, m.observe("audit", "0"), host.InSync)
	if got := m.addonOptions(); got != "audit=0" {
		t.Errorf("during the trial, the addon has %q", got)
	}
	m.startEntry()
	m.apply(settings("audit", "0", hugepage, "madvise"))
	expect(t, m.observe(hugepage, "madvise"), host.InSync)
	if got := m.addonOptions(); got != "audit=0 "+hugepage+"=madvise" {
		t.Errorf("the addon has %q", got)
	}
	// A failed value is in no image, and the other arguments stay.
	m.apply(settings("audit", "0", hugepage, "madvise", panicArgument, "/missing"))
	m.failTrial()
	m.apply(settings("audit", "0", hugepage, "madvise", panicArgument, "/missing"))
	expect(t, m.observe(panicArgument, "/missing"), host.Failed, "trial boot failed")
	expect(t, m.observe(hugepage, "madvise"), host.InSync)
	m.apply(nil)
	if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
		t.Errorf("after restore (-before +after):\n%s", diff)
	}
}

func TestUnifiedKernelImagesThatTheAgentDoesNotChange(t *testing.T) {
	writeAddon := func(m *machine, file string, sections ...imageSection) {
		data, err := renderImage(pe.IMAGE_FILE_MACHINE_AMD64, append([]imageSection{part(".text", "x")}, sections...))
		if err != nil {
			m.t.Fatal(err)
		}
		m.write(file, string(data))
	}
	tests := map[string]struct {
		prepare func(*machine)
		message string
	}{
		"an argument that no image has": {func(m *machine) { m.replace(commandLine, " ro ", " ro iommu=pt ") }, "has iommu=pt, which the default entry of " + newestImage + " does not pass"},
		"an argument of an addon": {func(m *machine) {
			writeAddon(m, "/efi/loader/addons/a.addon.efi", part(".cmdline", "iommu=pt"))
			m.startEntry()
		}, ""},
		"an addon of an image": {func(m *machine) {
			writeAddon(m, newestImage+".extra.d/A.ADDON.EFI", part(".cmdline", "iommu=pt"))
			m.replace(commandLine, "\n", " iommu=pt\n")
		}, ""},
		"an addon of another kernel": {func(m *machine) {
			writeAddon(m, "/efi/loader/addons/a.addon.efi", part(".cmdline", "iommu=pt"), part(".uname", "7"))
			m.replace(commandLine, "\n", " iommu=pt\n")
		}, "has iommu=pt, which"},
		"an addon with a kernel": {func(m *machine) {
			writeAddon(m, "/efi/loader/addons/a.addon.efi", part(".cmdline", "iommu=pt"), part(".linux", "7"))
			m.replace(commandLine, "\n", " iommu=pt\n")
		}, "has iommu=pt, which"},
		"an addon of the same kernel": {func(m *machine) {
			writeAddon(m, "/efi/loader/addons/a.addon.efi", part(".cmdline", "iommu=pt"), part(".uname", "6.12.9-amd64"))
			m.startEntry()
		}, ""},
		"an addon that is not one": {func(m *machine) { m.write("/efi/loader/addons/a.addon.efi", "text") }, "read /efi/loader/addons/a.addon.efi"},
		"Secure Boot":              {func(m *machine) { m.write(secureBoot, "\x06\x00\x00\x00\x01") }, "with Secure Boot, which rejects"},
		"unknown Secure Boot":      {func(m *machine) { m.remove(secureBoot) }, "does not show whether Secure Boot is on"},
		"without systemd-boot":     {func(m *machine) { m.remove(efiVars + "LoaderInfo" + loaderGUID) }, "without systemd-boot"},
		"another boot loader":      {func(m *machine) { m.setVariable("LoaderInfo", "rEFInd 0.14") }, "without systemd-boot"},
		"no images":                {func(m *machine) { m.remove(imagesDir) }, "have no EFI/Linux/*.efi"},
		"an image of systemd 253": {func(m *machine) {
			m.installImage("6.12.8-amd64", map[string]string{".sdmagic": "#### LoaderInfo: systemd-stub 253.4 ####"})
		}, olderImage + " was not built with systemd-stub 254 or newer"},
		"an image of systemd 254": {func(m *machine) {
			m.installImage("6.12.8-amd64", map[string]string{".sdmagic": "#### LoaderInfo: systemd-stub 254-1 ####"})
		}, ""},
		"an image of another stub":       {func(m *machine) { m.installImage("6.12.8-amd64", map[string]string{".sdmagic": ""}) }, "was not built with systemd-stub"},
		"an image with profiles":         {func(m *machine) { m.installImage("6.12.8-amd64", map[string]string{".profile": "ID=main\n"}) }, "has several profiles"},
		"an image of another system":     {func(m *machine) { m.installImage("6.12.8-amd64", map[string]string{".osrel": "ID=arch\nNAME=Arch\n"}) }, "would also reach"},
		"an image that is not in a menu": {func(m *machine) { m.installImage("6.12.8-amd64", map[string]string{".osrel": "", ".sdmagic": ""}) }, ""},
		"a damaged image":                {func(m *machine) { m.write(imagesDir+"/x.efi", "MZ") }, "read " + imagesDir + "/x.efi"},
		"a large section": {func(m *machine) {
			m.write(newestImage, strings.Replace(m.read(newestImage), ".cmdline", ".cmdline\x00\x00\x02", 1))
		}, "larger than 65536 bytes"},
		"an image counts boots": {func(m *machine) { m.write(strings.Replace(olderImage, ".efi", "+3-1.efi", 1), m.read(olderImage)) }, "counts boots"},
		"another default image": {func(m *machine) {
			m.installImage("6.13-amd64", map[string]string{".cmdline": "ro"})
			m.write("/efi/loader/loader.conf", "default "+systemdToken+"-6.12.9-*\n")
		}, ""},
		"the newest image has other arguments": {func(m *machine) { m.installImage("6.12.10-amd64", map[string]string{".cmdline": "ro"}) }, "which the default entry of " + imagesDir + "/" + systemdToken + "-6.12.10-amd64.efi does not pass"},
		"the arguments have several lines": {func(m *machine) {
			m.installImage("6.12.9-amd64", map[string]string{".cmdline": strings.ReplaceAll(systemdArgs, " ", "\n") + "\n"})
		}, ""},
		"an image with arguments for init": {func(m *machine) {
			m.installImage("6.12.8-amd64", map[string]string{".cmdline": systemdArgs + " -- debug"})
		}, olderImage + " has arguments for init after --"},
		"an addon with arguments for init": {func(m *machine) { writeAddon(m, "/efi/loader/addons/a.addon.efi", part(".cmdline", "--")) }, "has arguments for init after --"},
		"an image with an open quote":      {func(m *machine) { m.installImage("6.12.8-amd64", map[string]string{".cmdline": systemdArgs + ` a="b`}) }, "or an open quote"},
		"an entry is the default": {func(m *machine) {
			m.write(systemdEntries+"/zz.conf", "title x\nsort-key a\nlinux /vmlinuz\noptions "+systemdArgs+"\n")
		}, "the default entry " + systemdEntries + "/zz.conf is not a unified kernel image"},
		"an entry is not the default": {func(m *machine) {
			m.write(systemdEntries+"/zz.conf", "title x\nsort-key zz\nlinux /vmlinuz\noptions ro\n")
		}, ""},
		"an entry was booted":          {func(m *machine) { m.setVariable("LoaderEntrySelected", "zz.conf") }, `by entry "zz.conf", which is not a unified kernel image`},
		"its image is removed":         {func(m *machine) { m.setVariable("LoaderEntrySelected", systemdToken+"-6.12.7-amd64.efi") }, ""},
		"images on two partitions":     {func(m *machine) { m.write("/boot/EFI/Linux/x.efi", m.read(newestImage)) }, "both /efi/EFI/Linux/*.efi and /boot/EFI/Linux/*.efi exist"},
		"its partition is not mounted": {func(m *machine) { m.setLoaderPartition("/efi", "8:33") }, "is the EFI partition that systemd-boot was loaded from"},
		"new images count boots":       {func(m *machine) { m.write(triesFile, "3\n") }, triesFile + " exists"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newUKI(t)
			test.prepare(m)
			found := m.subject.Detect()
			before := m.bootFiles()
			m.apply(settings(ihash, seed))
			if test.message != "" {
				if found.Type != Unsupported || !strings.Contains(found.Message, test.message) {
					t.Errorf("got %+v, want %q", found, test.message)
				}
				expect(t, m.observe(ihash, seed), host.Unsupported, test.message)
				if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
					t.Errorf("files (-want +got):\n%s", diff)
				}
				return
			}
			if found.Type != UKI || !found.MayReboot() {
				t.Errorf("not proven: %+v", found)
			}
			m.startEntry()
			m.apply(settings(ihash, seed))
			expect(t, m.observe(ihash, seed), host.InSync)
			m.apply(nil)
			if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
				t.Errorf("after restore (-before +after):\n%s", diff)
			}
		})
	}
}

// An addon cannot replace an argument of an image, which belongs to the owner of the image.
func TestAnArgumentThatTheImagesContain(t *testing.T) {
	m := newUKI(t)
	before := m.bootFiles()
	m.apply(settings("console", "ttyS0"))
	expect(t, m.observe("console", "ttyS0"), host.InSync, "already set in "+imagesDir+"/*.efi, unchanged")
	m.apply(settings("console", "ttyS1"))
	expect(t, m.observe("console", "ttyS1"), host.Failed, "conflict: "+imagesDir+"/*.efi sets console=ttyS0")
	if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// An image is written in place while it is installed, which is no failure of a trial that waits for its boot.
func TestAnImageThatIsBeingInstalled(t *testing.T) {
	m := newUKI(t)
	m.apply(settings(ihash, seed))
	file := m.installImage("6.13.1-amd64", nil)
	whole := m.read(file)
	m.write(file, whole[:len(whole)/2])
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.Pending, "not staged yet", file)
	if m.subject.Detect().MayReboot() {
		t.Error("the node is rebooted")
	}
	m.write(file, whole)
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.Pending, "trial boot")
	m.prepareReboot()
	m.startEntry()
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.InSync)
}

// Secure Boot is enabled after the promotion: the addon no longer has an effect, but it can be removed.
func TestSecureBootThatIsEnabledAfterStaging(t *testing.T) {
	m := newUKI(t)
	before := m.bootFiles()
	for range 2 {
		m.apply(settings(ihash, seed))
		m.startEntry()
	}
	m.write(secureBoot, "\x06\x00\x00\x00\x01")
	if found := m.subject.Detect(); found.Type != UKI || found.Proven || !strings.Contains(found.Message, onlyMaintained) {
		t.Errorf("got %+v", found)
	}
	m.apply(nil)
	if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
		t.Errorf("after restore (-before +after):\n%s", diff)
	}
}

// Without any image, the trial cannot be booted, and its entry is removed.
func TestTheTrialOfImagesThatAreGone(t *testing.T) {
	m := newUKI(t)
	m.apply(settings(ihash, seed))
	m.remove(imagesDir)
	if err := m.rearm(true); err == nil {
		t.Error("got no error")
	}
	if m.oneShot() != "" || m.fs.Exists(systemdOnce) {
		t.Errorf("selected is %q", m.oneShot())
	}
}

// An addon of another program stays, and so do its arguments in a file with the agent's name, e.g. after a new installation.
func TestAnAddonWithoutARecord(t *testing.T) {
	m := newUKI(t)
	for range 2 {
		m.apply(settings("audit", "0"))
		m.startEntry()
	}
	m.apply(settings("audit", "0"))
	m.remove("/var/lib/storage-client")
	clear(m.facts)
	m.restart()
	before := m.bootFiles()
	for range 2 {
		m.apply(settings("audit", "0", ihash, seed))
		m.startEntry()
	}
	m.apply(settings("audit", "0", ihash, seed))
	expect(t, m.observe("audit", "0"), host.InSync, "already set in "+imagesDir)
	if got := m.addonOptions(); got != "audit=0 "+ihashSeed {
		t.Errorf("the addon has %q", got)
	}
	m.apply(nil)
	if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
		t.Errorf("after restore (-before +after):\n%s", diff)
	}
}

// recordedHeader is the optional header of addonx64.efi.stub of systemd 257.13, without the zeros at its end.
const recordedHeader = "0b0200000b00000034000000000000000010000000100000000051dd0100000000100000000200000000000001010d000100010000000000003000000004" +
	"0000000000000a0060010000100000000000001000000000000000001000000000000010000000000000000000001"

// systemd's own addons have the same headers and the same code.
func TestAddonsAreLikeThoseOfSystemd(t *testing.T) {
	m := newUKI(t)
	for range 2 {
		m.apply(settings(ihash, seed))
		m.startEntry()
	}
	m.apply(settings(ihash, seed))
	got, err := pe.Open(filepath.Join(m.dir, ukiAddon))
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	header := *got.OptionalHeader.(*pe.OptionalHeader64)
	last := got.Sections[len(got.Sections)-1]
	info, err := os.Stat(filepath.Join(m.dir, ukiAddon))
	if err != nil || info.Size() != int64(last.Offset+last.Size) || header.SizeOfImage != last.VirtualAddress+pageSize || header.SizeOfHeaders != got.Sections[0].Offset {
		t.Errorf("sizes: %v, %+v, %+v, %v", info, header, last.SectionHeader, err)
	}
	data, err := hex.DecodeString(recordedHeader + strings.Repeat("0", 480-len(recordedHeader)))
	if err != nil {
		t.Fatal(err)
	}
	var want pe.OptionalHeader64
	if err := binary.Read(bytes.NewReader(data), binary.LittleEndian, &want); err != nil {
		t.Fatal(err)
	}
	header.SizeOfInitializedData, header.ImageBase, header.SizeOfImage = want.SizeOfInitializedData, want.ImageBase, want.SizeOfImage
	header.MajorImageVersion, header.MinorImageVersion = want.MajorImageVersion, want.MinorImageVersion
	if diff := cmp.Diff(want, header); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	file := got.FileHeader
	file.TimeDateStamp, file.NumberOfSections = 0, 0
	if recorded := (pe.FileHeader{Machine: pe.IMAGE_FILE_MACHINE_AMD64, SizeOfOptionalHeader: 240, Characteristics: 558}); file != recorded {
		t.Errorf("header: got %+v, want %+v", file, recorded)
	}
	for i, section := range got.Sections {
		if flags := []uint32{0x60000020, 0x40000040}[min(i, 1)]; section.Characteristics != flags {
			t.Errorf("section %s has the flags %x, want %x", section.Name, section.Characteristics, flags)
		}
	}
	code, err := got.Sections[0].Data()
	if recorded := "48b80300000000000080c3"; err != nil || hex.EncodeToString(bytes.TrimRight(code, "\x00")) != recorded {
		t.Errorf("code: got %x, want %s: %v", code, recorded, err)
	}
}

// On VFAT, a power cut can leave a new addon empty. systemd-stub ignores it, and the next pass of the agent replaces it.
func TestAPowerCutThatEmptiesTheAddon(t *testing.T) {
	empty, zeros := "", strings.Repeat("\x00", 1024)
	for name, test := range map[string]struct {
		left    string
		desired []host.Setting
	}{
		"the same value":                  {empty, settings(ihash, seed)},
		"another value":                   {empty, settings(ihash, "1048576")},
		"given up":                        {empty, nil},
		"blocks that were never written":  {zeros, settings(ihash, seed)},
		"such blocks, and another value":  {zeros, settings(ihash, "1048576")},
		"such blocks, and it is given up": {zeros, nil},
	} {
		t.Run(name, func(t *testing.T) {
			desired := test.desired
			m := newUKI(t)
			before := m.bootFiles()
			m.apply(settings(ihash, seed))
			m.startEntry()
			for n := 1; !m.fs.Exists(ukiAddon); n++ {
				promoting, _ := m.crashing(n)
				_ = promoting.Apply(t.Context(), settings(ihash, seed))
			}
			m.write(ukiAddon, test.left)
			m.startEntry()
			m.apply(desired)
			for _, setting := range desired {
				expect(t, m.observe(setting.Name, setting.Value), host.Pending, "staged", "trial boot")
				m.startEntry()
				m.apply(desired)
				expect(t, m.observe(setting.Name, setting.Value), host.InSync)
				m.expectInDefaults(setting.Name+"="+setting.Value, true)
			}
			m.apply(nil)
			if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
				t.Errorf("after restore (-before +after):\n%s", diff)
			}
		})
	}
}

// The agent adds its arguments again to a file that another program or a fault of the disk has changed, and removes only them.
func TestAnAddonThatOthersChange(t *testing.T) {
	other, err := renderImage(pe.IMAGE_FILE_MACHINE_AMD64, []imageSection{part(".text", addonCode[pe.IMAGE_FILE_MACHINE_AMD64]), part(".cmdline", "iommu=pt")})
	if err != nil {
		t.Fatal(err)
	}
	for content, left := range map[string]string{"": "", "\x00\x00": "", string(other): "iommu=pt"} {
		t.Run(fmt.Sprintf("%d bytes", len(content)), func(t *testing.T) {
			m := newUKI(t)
			for range 2 {
				m.apply(settings(ihash, seed))
				m.startEntry()
			}
			m.apply(settings(ihash, seed))
			m.write(ukiAddon, content)
			expect(t, m.observe(ihash, seed), host.Drifted, "the next boot will not pass it")
			m.apply(settings(ihash, seed))
			expect(t, m.observe(ihash, seed), host.InSync)
			m.apply(nil)
			if got := m.addonOptions(); got != left {
				t.Errorf("after restore, the addon has %q, want %q", got, left)
			}
		})
	}
}
