package uki_test

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

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/bls"
	"github.com/storageclient/operator/agent/host/bootloader/efi"
	"github.com/storageclient/operator/agent/host/bootloader/life"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
	"github.com/storageclient/operator/agent/host/bootloader/uki"
	"github.com/storageclient/operator/agent/host/hosttest/rig"
	"github.com/storageclient/operator/test/check"
)

func TestAnArgumentReachesUnifiedKernelImagesOnlyAfterItsTrial(t *testing.T) {
	m := rig.NewUKI(t)
	before := m.BootFiles()
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "trial boot")
	if found := m.Subject.Detect(); found.Type != loader.UKI || !found.MayReboot() {
		t.Errorf("not rebooted: %+v", found)
	}
	want := efi.StateMark + loader.TrialArmed + "\ntitle " + bls.OnceTitle + "\nversion 0\nefi /EFI/Linux/" + path.Base(rig.NewestImage) + "\noptions " + rig.SystemdArgs + " " + rig.IhashSeed + "\n"
	check.Equal(t, "entry", want, m.Read(rig.SystemdOnce))
	m.ExpectInDefaults(rig.IhashSeed, false)
	// An image that is installed before the promotion boots without the argument.
	newer := m.InstallImage("6.13.1-amd64", nil)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	if !strings.Contains(m.Read(rig.SystemdOnce), path.Base(newer)) {
		t.Errorf("the trial is not that of the new default image:\n%s", m.Read(rig.SystemdOnce))
	}
	m.PrepareReboot()
	check.Equal(t, "booted entry", bls.OnceID, m.StartEntry())
	m.ExpectInDefaults(rig.IhashSeed, false)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync)
	m.ExpectInDefaults(rig.IhashSeed, true)
	if m.FS.Exists(rig.SystemdOnce) || m.OneShot() != "" {
		t.Error("the trial is left")
	}
	// A later one has it.
	later := m.InstallImage("6.13.2-amd64", nil)
	if name := m.StartEntry(); name != path.Base(later) || !strings.Contains(m.Read(loader.CommandLine), rig.IhashSeed) {
		t.Errorf("booted %s with %s", name, m.Read(loader.CommandLine))
	}
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	if got := m.Observe(rig.Ihash, rig.Seed); got.State != host.InSync || got.Message != "" {
		t.Errorf("got %+v", got)
	}
	m.Remove(rig.UkiAddon)
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Drifted, "the next boot will not pass it")
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync)
	m.ExpectInDefaults(rig.IhashSeed, true)
	// An image with the argument keeps it.
	m.Write(bls.LaterFile, rig.SystemdArgs+" "+rig.IhashSeed+"\n")
	m.InstallImage("6.13.3-amd64", nil)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync)
	m.Apply(nil)
	rig.Expect(t, m.Restore(rig.Ihash, host.Original{}), host.Pending, "until the next reboot")
	m.Write(bls.LaterFile, rig.SystemdArgs+"\n")
	after := m.BootFiles()
	for name := range after {
		if strings.Contains(name, "6.13.") {
			delete(after, name)
		}
	}
	check.Equal(t, "after restore", before, after)
	m.StartEntry()
	rig.Expect(t, m.Restore(rig.Ihash, host.Original{}), host.InSync, "set by another program")
}

func TestAPanicReturnsToTheDefaultImage(t *testing.T) {
	m := rig.NewUKI(t)
	before := m.BootFiles()
	bad := rig.Settings(rig.PanicArgument, "/missing")
	m.Apply(bad)
	m.PrepareReboot()
	check.Equal(t, "booted image", path.Base(rig.NewestImage), m.StartEntry())
	m.Apply(bad)
	rig.Expect(t, m.Observe(rig.PanicArgument, "/missing"), host.Failed, "trial boot failed")
	m.ExpectInDefaults(rig.PanicArgument+"=/missing", false)
	m.Apply(nil)
	check.Equal(t, "after restore", before, m.BootFiles())
}

// An addon can only append. The default images therefore lose the previous value when the next one has its trial, and nothing else.
func TestAnotherValueOfAnArgumentInAnAddon(t *testing.T) {
	m := rig.NewUKI(t)
	before := m.BootFiles()
	for range 2 {
		m.Apply(rig.Settings("audit", "0", rig.Hugepage, "never"))
		m.StartEntry()
	}
	check.Equal(t, "arguments of the addon", "audit=0 "+rig.Hugepage+"=never", m.AddonOptions())
	m.Apply(rig.Settings("audit", "0", rig.Hugepage, "madvise"))
	rig.Expect(t, m.Observe(rig.Hugepage, "madvise"), host.Pending, "trial boot")
	rig.Expect(t, m.Observe("audit", "0"), host.InSync)
	check.Equal(t, "arguments of the addon during the trial", "audit=0", m.AddonOptions())
	m.StartEntry()
	m.Apply(rig.Settings("audit", "0", rig.Hugepage, "madvise"))
	rig.Expect(t, m.Observe(rig.Hugepage, "madvise"), host.InSync)
	check.Equal(t, "arguments of the addon", "audit=0 "+rig.Hugepage+"=madvise", m.AddonOptions())
	// A failed value is in no image, and the other arguments stay.
	m.Apply(rig.Settings("audit", "0", rig.Hugepage, "madvise", rig.PanicArgument, "/missing"))
	m.FailTrial()
	m.Apply(rig.Settings("audit", "0", rig.Hugepage, "madvise", rig.PanicArgument, "/missing"))
	rig.Expect(t, m.Observe(rig.PanicArgument, "/missing"), host.Failed, "trial boot failed")
	rig.Expect(t, m.Observe(rig.Hugepage, "madvise"), host.InSync)
	m.Apply(nil)
	check.Equal(t, "after restore", before, m.BootFiles())
}

func TestUnifiedKernelImagesThatTheAgentDoesNotChange(t *testing.T) {
	writeAddon := func(m *rig.Machine, file string, sections ...uki.ImageSection) {
		data, err := uki.RenderImage(pe.IMAGE_FILE_MACHINE_AMD64, append([]uki.ImageSection{rig.Part(".text", "x")}, sections...))
		if err != nil {
			m.T.Fatal(err)
		}
		m.Write(file, string(data))
	}
	tests := map[string]struct {
		prepare func(*rig.Machine)
		message string
	}{
		"an argument that no image has": {func(m *rig.Machine) { m.Replace(loader.CommandLine, " ro ", " ro iommu=pt ") }, "has iommu=pt, which the default entry of " + rig.NewestImage + " does not pass"},
		"an argument of an addon": {func(m *rig.Machine) {
			writeAddon(m, "/efi/loader/addons/a.addon.efi", rig.Part(".cmdline", "iommu=pt"))
			m.StartEntry()
		}, ""},
		"an addon of an image": {func(m *rig.Machine) {
			writeAddon(m, rig.NewestImage+".extra.d/A.ADDON.EFI", rig.Part(".cmdline", "iommu=pt"))
			m.Replace(loader.CommandLine, "\n", " iommu=pt\n")
		}, ""},
		"an addon of another kernel": {func(m *rig.Machine) {
			writeAddon(m, "/efi/loader/addons/a.addon.efi", rig.Part(".cmdline", "iommu=pt"), rig.Part(".uname", "7"))
			m.Replace(loader.CommandLine, "\n", " iommu=pt\n")
		}, "has iommu=pt, which"},
		"an addon with a kernel": {func(m *rig.Machine) {
			writeAddon(m, "/efi/loader/addons/a.addon.efi", rig.Part(".cmdline", "iommu=pt"), rig.Part(".linux", "7"))
			m.Replace(loader.CommandLine, "\n", " iommu=pt\n")
		}, "has iommu=pt, which"},
		"an addon of the same kernel": {func(m *rig.Machine) {
			writeAddon(m, "/efi/loader/addons/a.addon.efi", rig.Part(".cmdline", "iommu=pt"), rig.Part(".uname", "6.12.9-amd64"))
			m.StartEntry()
		}, ""},
		"an addon that is not one": {func(m *rig.Machine) { m.Write("/efi/loader/addons/a.addon.efi", "text") }, "read /efi/loader/addons/a.addon.efi"},
		"Secure Boot":              {func(m *rig.Machine) { m.Write(uki.SecureBoot, "\x06\x00\x00\x00\x01") }, "with Secure Boot, which rejects"},
		"unknown Secure Boot":      {func(m *rig.Machine) { m.Remove(uki.SecureBoot) }, "does not show whether Secure Boot is on"},
		"without systemd-boot":     {func(m *rig.Machine) { m.Remove(efi.Vars + "LoaderInfo" + efi.LoaderGUID) }, "without systemd-boot"},
		"another boot loader":      {func(m *rig.Machine) { m.SetVariable("LoaderInfo", "rEFInd 0.14") }, "without systemd-boot"},
		"no images":                {func(m *rig.Machine) { m.Remove(rig.ImagesDir) }, "have no EFI/Linux/*.efi"},
		"an image of systemd 253": {func(m *rig.Machine) {
			m.InstallImage("6.12.8-amd64", map[string]string{".sdmagic": "#### LoaderInfo: systemd-stub 253.4 ####"})
		}, rig.OlderImage + " was not built with systemd-stub 254 or newer"},
		"an image of systemd 254": {func(m *rig.Machine) {
			m.InstallImage("6.12.8-amd64", map[string]string{".sdmagic": "#### LoaderInfo: systemd-stub 254-1 ####"})
		}, ""},
		"an image of another stub": {func(m *rig.Machine) { m.InstallImage("6.12.8-amd64", map[string]string{".sdmagic": ""}) }, "was not built with systemd-stub"},
		"an image with profiles":   {func(m *rig.Machine) { m.InstallImage("6.12.8-amd64", map[string]string{".profile": "ID=main\n"}) }, "has several profiles"},
		"an image of another system": {func(m *rig.Machine) {
			m.InstallImage("6.12.8-amd64", map[string]string{".osrel": "ID=arch\nNAME=Arch\n"})
		}, "would also reach"},
		"an image that is not in a menu": {func(m *rig.Machine) { m.InstallImage("6.12.8-amd64", map[string]string{".osrel": "", ".sdmagic": ""}) }, ""},
		"a damaged image":                {func(m *rig.Machine) { m.Write(rig.ImagesDir+"/x.efi", "MZ") }, "read " + rig.ImagesDir + "/x.efi"},
		"a large section": {func(m *rig.Machine) {
			m.Write(rig.NewestImage, strings.Replace(m.Read(rig.NewestImage), ".cmdline", ".cmdline\x00\x00\x02", 1))
		}, "larger than 65536 bytes"},
		"an image counts boots": {func(m *rig.Machine) {
			m.Write(strings.Replace(rig.OlderImage, ".efi", "+3-1.efi", 1), m.Read(rig.OlderImage))
		}, "counts boots"},
		"another default image": {func(m *rig.Machine) {
			m.InstallImage("6.13-amd64", map[string]string{".cmdline": "ro"})
			m.Write("/efi/loader/loader.conf", "default "+rig.SystemdToken+"-6.12.9-*\n")
		}, ""},
		"the newest image has other arguments": {func(m *rig.Machine) { m.InstallImage("6.12.10-amd64", map[string]string{".cmdline": "ro"}) }, "which the default entry of " + rig.ImagesDir + "/" + rig.SystemdToken + "-6.12.10-amd64.efi does not pass"},
		"the arguments have several lines": {func(m *rig.Machine) {
			m.InstallImage("6.12.9-amd64", map[string]string{".cmdline": strings.ReplaceAll(rig.SystemdArgs, " ", "\n") + "\n"})
		}, ""},
		"an image with arguments for init": {func(m *rig.Machine) {
			m.InstallImage("6.12.8-amd64", map[string]string{".cmdline": rig.SystemdArgs + " -- debug"})
		}, rig.OlderImage + " has arguments for init after --"},
		"an addon with arguments for init": {func(m *rig.Machine) { writeAddon(m, "/efi/loader/addons/a.addon.efi", rig.Part(".cmdline", "--")) }, "has arguments for init after --"},
		"an image with an open quote": {func(m *rig.Machine) {
			m.InstallImage("6.12.8-amd64", map[string]string{".cmdline": rig.SystemdArgs + ` a="b`})
		}, "or an open quote"},
		"an entry is the default": {func(m *rig.Machine) {
			m.Write(rig.SystemdEntries+"/zz.conf", "title x\nsort-key a\nlinux /vmlinuz\noptions "+rig.SystemdArgs+"\n")
		}, "the default entry " + rig.SystemdEntries + "/zz.conf is not a unified kernel image"},
		"an entry is not the default": {func(m *rig.Machine) {
			m.Write(rig.SystemdEntries+"/zz.conf", "title x\nsort-key zz\nlinux /vmlinuz\noptions ro\n")
		}, ""},
		"an entry was booted":          {func(m *rig.Machine) { m.SetVariable("LoaderEntrySelected", "zz.conf") }, `by entry "zz.conf", which is not a unified kernel image`},
		"its image is removed":         {func(m *rig.Machine) { m.SetVariable("LoaderEntrySelected", rig.SystemdToken+"-6.12.7-amd64.efi") }, ""},
		"images on two partitions":     {func(m *rig.Machine) { m.Write("/boot/EFI/Linux/x.efi", m.Read(rig.NewestImage)) }, "both /efi/EFI/Linux/*.efi and /boot/EFI/Linux/*.efi exist"},
		"its partition is not mounted": {func(m *rig.Machine) { m.SetLoaderPartition("/efi", "8:33") }, "is the EFI partition that systemd-boot was loaded from"},
		"new images count boots":       {func(m *rig.Machine) { m.Write(efi.TriesFile, "3\n") }, efi.TriesFile + " exists"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := rig.NewUKI(t)
			test.prepare(m)
			found := m.Subject.Detect()
			before := m.BootFiles()
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			if test.message != "" {
				if found.Type != loader.Unsupported || !strings.Contains(found.Message, test.message) {
					t.Errorf("got %+v, want %q", found, test.message)
				}
				rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Unsupported, test.message)
				check.Equal(t, "files", before, m.BootFiles())
				return
			}
			if found.Type != loader.UKI || !found.MayReboot() {
				t.Errorf("not proven: %+v", found)
			}
			m.StartEntry()
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync)
			m.Apply(nil)
			check.Equal(t, "after restore", before, m.BootFiles())
		})
	}
}

// An addon cannot replace an argument of an image, which belongs to the owner of the image.
func TestAnArgumentThatTheImagesContain(t *testing.T) {
	m := rig.NewUKI(t)
	before := m.BootFiles()
	m.Apply(rig.Settings("console", "ttyS0"))
	rig.Expect(t, m.Observe("console", "ttyS0"), host.InSync, "already set in "+rig.ImagesDir+"/*.efi, unchanged")
	m.Apply(rig.Settings("console", "ttyS1"))
	rig.Expect(t, m.Observe("console", "ttyS1"), host.Failed, "conflict: "+rig.ImagesDir+"/*.efi sets console=ttyS0")
	check.Equal(t, "files", before, m.BootFiles())
}

// An image is written in place while it is installed, which is no failure of a trial that waits for its boot.
func TestAnImageThatIsBeingInstalled(t *testing.T) {
	m := rig.NewUKI(t)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	file := m.InstallImage("6.13.1-amd64", nil)
	whole := m.Read(file)
	m.Write(file, whole[:len(whole)/2])
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "not staged yet", file)
	if m.Subject.Detect().MayReboot() {
		t.Error("the node is rebooted")
	}
	m.Write(file, whole)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "trial boot")
	m.PrepareReboot()
	m.StartEntry()
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync)
}

// Secure Boot is enabled after the promotion: the addon no longer has an effect, but it can be removed.
func TestSecureBootThatIsEnabledAfterStaging(t *testing.T) {
	m := rig.NewUKI(t)
	before := m.BootFiles()
	for range 2 {
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		m.StartEntry()
	}
	m.Write(uki.SecureBoot, "\x06\x00\x00\x00\x01")
	if found := m.Subject.Detect(); found.Type != loader.UKI || found.Proven || !strings.Contains(found.Message, life.OnlyMaintained) {
		t.Errorf("got %+v", found)
	}
	m.Apply(nil)
	check.Equal(t, "after restore", before, m.BootFiles())
}

// Without any image, the trial cannot be booted, and its entry is removed.
func TestTheTrialOfImagesThatAreGone(t *testing.T) {
	m := rig.NewUKI(t)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	m.Remove(rig.ImagesDir)
	if err := m.Rearm(true); err == nil {
		t.Error("got no error")
	}
	if m.OneShot() != "" || m.FS.Exists(rig.SystemdOnce) {
		t.Errorf("selected is %q", m.OneShot())
	}
}

// An addon of another program stays, and so do its arguments in a file with the agent's name, e.g. after a new installation.
func TestAnAddonWithoutARecord(t *testing.T) {
	m := rig.NewUKI(t)
	for range 2 {
		m.Apply(rig.Settings("audit", "0"))
		m.StartEntry()
	}
	m.Apply(rig.Settings("audit", "0"))
	m.Remove("/var/lib/storage-client")
	clear(m.Facts)
	m.Restart()
	before := m.BootFiles()
	for range 2 {
		m.Apply(rig.Settings("audit", "0", rig.Ihash, rig.Seed))
		m.StartEntry()
	}
	m.Apply(rig.Settings("audit", "0", rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe("audit", "0"), host.InSync, "already set in "+rig.ImagesDir)
	check.Equal(t, "arguments of the addon", "audit=0 "+rig.IhashSeed, m.AddonOptions())
	m.Apply(nil)
	check.Equal(t, "after restore", before, m.BootFiles())
}

// recordedHeader is the optional header of addonx64.efi.stub of systemd 257.13, without the zeros at its end.
const recordedHeader = "0b0200000b00000034000000000000000010000000100000000051dd0100000000100000000200000000000001010d000100010000000000003000000004" +
	"0000000000000a0060010000100000000000001000000000000000001000000000000010000000000000000000001"

// systemd's own addons have the same headers and the same code.
func TestAddonsAreLikeThoseOfSystemd(t *testing.T) {
	m := rig.NewUKI(t)
	for range 2 {
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		m.StartEntry()
	}
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	got, err := pe.Open(filepath.Join(m.Dir, rig.UkiAddon))
	check.NoError(t, err)
	defer got.Close()
	header := *got.OptionalHeader.(*pe.OptionalHeader64)
	last := got.Sections[len(got.Sections)-1]
	info, err := os.Stat(filepath.Join(m.Dir, rig.UkiAddon))
	if err != nil || info.Size() != int64(last.Offset+last.Size) || header.SizeOfImage != last.VirtualAddress+uki.PageSize || header.SizeOfHeaders != got.Sections[0].Offset {
		t.Errorf("sizes: %v, %+v, %+v, %v", info, header, last.SectionHeader, err)
	}
	data, err := hex.DecodeString(recordedHeader + strings.Repeat("0", 480-len(recordedHeader)))
	check.NoError(t, err)
	var want pe.OptionalHeader64
	check.NoError(t, binary.Read(bytes.NewReader(data), binary.LittleEndian, &want))
	header.SizeOfInitializedData, header.ImageBase, header.SizeOfImage = want.SizeOfInitializedData, want.ImageBase, want.SizeOfImage
	header.MajorImageVersion, header.MinorImageVersion = want.MajorImageVersion, want.MinorImageVersion
	check.Equal(t, "header", want, header)
	file := got.FileHeader
	file.TimeDateStamp, file.NumberOfSections = 0, 0
	check.Equal(t, "header", pe.FileHeader{Machine: pe.IMAGE_FILE_MACHINE_AMD64, SizeOfOptionalHeader: 240, Characteristics: 558}, file)
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
		"the same value":                  {empty, rig.Settings(rig.Ihash, rig.Seed)},
		"another value":                   {empty, rig.Settings(rig.Ihash, "1048576")},
		"given up":                        {empty, nil},
		"blocks that were never written":  {zeros, rig.Settings(rig.Ihash, rig.Seed)},
		"such blocks, and another value":  {zeros, rig.Settings(rig.Ihash, "1048576")},
		"such blocks, and it is given up": {zeros, nil},
	} {
		t.Run(name, func(t *testing.T) {
			desired := test.desired
			m := rig.NewUKI(t)
			before := m.BootFiles()
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			m.StartEntry()
			for n := 1; !m.FS.Exists(rig.UkiAddon); n++ {
				promoting, _ := m.Crashing(n)
				_ = promoting.Apply(t.Context(), rig.Settings(rig.Ihash, rig.Seed))
			}
			m.Write(rig.UkiAddon, test.left)
			m.StartEntry()
			m.Apply(desired)
			for _, setting := range desired {
				rig.Expect(t, m.Observe(setting.Name, setting.Value), host.Pending, "staged", "trial boot")
				m.StartEntry()
				m.Apply(desired)
				rig.Expect(t, m.Observe(setting.Name, setting.Value), host.InSync)
				m.ExpectInDefaults(setting.Name+"="+setting.Value, true)
			}
			m.Apply(nil)
			check.Equal(t, "after restore", before, m.BootFiles())
		})
	}
}

// The agent adds its arguments again to a file that another program or a fault of the disk has changed, and removes only them.
func TestAnAddonThatOthersChange(t *testing.T) {
	other, err := uki.RenderImage(pe.IMAGE_FILE_MACHINE_AMD64, []uki.ImageSection{rig.Part(".text", uki.AddonCode[pe.IMAGE_FILE_MACHINE_AMD64]), rig.Part(".cmdline", "iommu=pt")})
	check.NoError(t, err)
	for content, left := range map[string]string{"": "", "\x00\x00": "", string(other): "iommu=pt"} {
		t.Run(fmt.Sprintf("%d bytes", len(content)), func(t *testing.T) {
			m := rig.NewUKI(t)
			for range 2 {
				m.Apply(rig.Settings(rig.Ihash, rig.Seed))
				m.StartEntry()
			}
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			m.Write(rig.UkiAddon, content)
			rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Drifted, "the next boot will not pass it")
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync)
			m.Apply(nil)
			if got := m.AddonOptions(); got != left {
				t.Errorf("after restore, the addon has %q, want %q", got, left)
			}
		})
	}
}
