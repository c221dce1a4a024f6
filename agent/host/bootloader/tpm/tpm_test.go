package tpm_test

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
	"github.com/storageclient/operator/agent/host/bootloader/tpm"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/hosttest/rig"
	"github.com/storageclient/operator/test/check"
)

func clevisToken(pin string) string {
	protected := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"dir","clevis":` + pin + `,"enc":"A256GCM"}`))
	return fmt.Sprintf(`{"tokens":{"0":{"type":"clevis","keyslots":["1"],"jwe":{"ciphertext":"x","protected":%q}}}}`, protected)
}

func TestAVolumeBoundToTheCommandLineIsFoundBeforeStaging(t *testing.T) {
	const dump, systemd8 = "cryptsetup luksDump --dump-json-metadata ", `{"tokens":{"0":{"type":"systemd-tpm2","tpm2-pcrs":[8]}}}`
	inner := base64.RawURLEncoding.EncodeToString([]byte(`{"clevis":{"pin":"tpm2","tpm2":{"pcr_ids":"0,9"}}}`)) + ".key.iv.text.tag"
	const plain = "data UUID=1234 none luks\n"
	tests := map[string]struct {
		crypttab, metadata, cmdline string
		noTPM, isMissing            bool
		// device is the name of the volume's device. By default, it is named by the UUID 1234.
		device string
		// fails is the error of cryptsetup instead of metadata. clevis is the list from Clevis in that case.
		fails, clevis string
		register      string
	}{
		"no encrypted volume":                       {},
		"a token of systemd bound to PCR 7":         {crypttab: plain, metadata: `{"tokens":{"0":{"type":"systemd-tpm2","tpm2-pcrs":[7]}}}`},
		"a token of systemd bound to PCR 12":        {crypttab: plain, metadata: `{"tokens":{"0":{"type":"systemd-tpm2","tpm2-pcrs":[7,12]}}}`, register: "12"},
		"a token bound to PCR 11, a signed policy":  {crypttab: plain, metadata: `{"tokens":{"0":{"type":"systemd-tpm2","tpm2-pcrs":[],"tpm2_pubkey_pcrs":[11]}}}`},
		"a token bound to PCR 12, a signed policy":  {crypttab: plain, metadata: `{"tokens":{"0":{"type":"systemd-tpm2","tpm2-pcrs":[],"tpm2_pubkey_pcrs":[11,12]}}}`, register: "12"},
		"a policy of systemd-pcrlock":               {crypttab: plain, metadata: `{"tokens":{"0":{"type":"systemd-tpm2","tpm2-pcrs":[],"tpm2_pcrlock":true}}}`, register: "12"},
		"a token of Clevis bound to PCR 8":          {crypttab: plain, metadata: clevisToken(`{"pin":"tpm2","tpm2":{"hash":"sha256","pcr_bank":"sha256","pcr_ids":"7,8"}}`), register: "8"},
		"a token of Clevis bound to PCR 7":          {crypttab: plain, metadata: clevisToken(`{"pin":"tpm2","tpm2":{"pcr_ids":"7"}}`)},
		"a token of Clevis for a server":            {crypttab: plain, metadata: clevisToken(`{"pin":"tang","tang":{"url":"http://t"}}`)},
		"the TPM as one share of several":           {crypttab: plain, metadata: clevisToken(fmt.Sprintf(`{"pin":"sss","sss":{"t":1,"jwe":[%q]}}`, inner)), register: "9"},
		"an option of crypttab":                     {crypttab: "data UUID=1234 none luks,tpm2-device=auto,tpm2-pcrs=7+8\n", metadata: `{}`, register: "8"},
		"an option by the register's name":          {crypttab: "data UUID=1234 none tpm2-pcrs=7+kernel-config:sha256\n", metadata: `{}`, register: "12"},
		"an option without registers":               {crypttab: "data UUID=1234 none luks,tpm2-device=auto\n", metadata: `{}`},
		"a volume that only the command line names": {cmdline: " rd.luks.uuid=luks-1234", metadata: `{"tokens":{"0":{"type":"systemd-tpm2","tpm2-pcrs":[8]}}}`, register: "8"},
		"a volume that luks.uuid names":             {cmdline: " luks.uuid=1234", metadata: systemd8, register: "8"},
		"a volume that rd.luks.name names":          {cmdline: " rd.luks.name=1234=root rd.luks.options=tpm2-device=auto", metadata: systemd8, register: "8"},
		"a volume that luks.name names":             {cmdline: " luks.name=luks-1234=root", metadata: systemd8, register: "8"},
		"registers on the command line":             {cmdline: " rd.luks.options=tpm2-device=auto,tpm2-pcrs=7+12 rd.luks.uuid=1234", metadata: `{}`, register: "12"},
		"registers of one volume":                   {cmdline: " rd.luks.options=1234=tpm2-device=auto,tpm2-pcrs=9", metadata: `{}`, register: "9"},
		"other registers on the command line":       {cmdline: " rd.luks.name=1234=root rd.luks.options=tpm2-device=auto,tpm2-pcrs=7", metadata: `{}`},
		"a partition by rd.luks.partuuid":           {cmdline: " rd.luks.partuuid=1234", device: "/dev/disk/by-partuuid/1234", metadata: systemd8, register: "8"},
		"a partition by its label":                  {crypttab: "data PARTLABEL=data none luks\n", device: "/dev/disk/by-partlabel/data", metadata: systemd8, register: "8"},
		"a volume in quotes":                        {crypttab: "data UUID=\"1234\" none luks\n", metadata: systemd8, register: "8"},
		"a missing volume that may be missing":      {crypttab: "data UUID=5678 none luks,nofail\nmore UUID=90ab none noauto\n"},
		"a missing volume, and a bound one":         {crypttab: "data UUID=5678 none luks\n" + plain, metadata: systemd8, register: "8"},
		"a missing volume with registers":           {crypttab: "data UUID=5678 none tpm2-pcrs=8\n", device: "/dev/disk/by-uuid/5678", isMissing: true, register: "8"},
		"swap with a new key at each boot":          {crypttab: "# comment\nswap UUID=1234 /dev/urandom swap,cipher=aes\n", fails: "not a LUKS device"},
		"no TPM":                                    {crypttab: plain, metadata: `{"tokens":{"0":{"type":"systemd-tpm2","tpm2-pcrs":[8]}}}`, noTPM: true},
		"LUKS1 with Clevis":                         {crypttab: plain, fails: "not a LUKS2 device", clevis: `1: tpm2 '{"hash":"sha256","key":"ecc","pcr_ids":"7,8"}'`, register: "8"},
		"LUKS1 with Clevis bound to PCR 7":          {crypttab: plain, fails: "not a LUKS2 device", clevis: `1: tpm2 '{"hash":"sha256","pcr_ids":"7"}'`},
		"LUKS1 without Clevis":                      {crypttab: plain, fails: "not a LUKS2 device"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := rig.New(t, rig.Debian)
			device := cmp.Or(test.device, "/dev/disk/by-uuid/1234")
			if !test.isMissing {
				m.Write(device, "")
			}
			if !test.noTPM {
				m.Write("/sys/class/tpm/tpm0/tpm_version_major", "2\n")
			}
			if test.crypttab != "" {
				m.Write(tpm.Crypttab, test.crypttab)
			}
			m.Write(loader.CommandLine, strings.TrimSpace(m.Read(loader.CommandLine))+test.cmdline+"\n")
			m.Write(loader.DefaultFile, m.Read(loader.DefaultFile)+`GRUB_CMDLINE_LINUX="`+test.cmdline+"\"\n")
			m.MakeGrubCfg()
			m.Commands.Output = map[string]string{}
			if test.fails != "" {
				m.Commands.Fail = map[string]error{"cryptsetup": errors.New(test.fails)}
			} else if test.metadata != "" {
				m.Commands.Output[dump+device] = test.metadata
			}
			if test.clevis != "" {
				m.Commands.Output["clevis luks list -d "+device] = test.clevis
			}
			before := hosttest.ReadTree(t, m.Dir, "/boot", "/etc")
			err := m.Subject.Apply(t.Context(), rig.Settings(rig.Ihash, rig.Seed))
			if test.register == "" {
				check.NoError(t, err)
				rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending)
				return
			}
			if err != nil {
				t.Errorf("got error %v, want none for an omitted argument", err)
			}
			rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Unsupported, "PCR "+test.register+",", device, "not staged")
			if diff := gocmp.Diff(before, hosttest.ReadTree(t, m.Dir, "/boot", "/etc")); diff != "" {
				t.Errorf("changed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnreadableDiskBindingPreventsStaging(t *testing.T) {
	tests := map[string]struct {
		device, crypttab, cmdline, message string
	}{
		"the device is busy":                         {"/dev/sda3", "data /dev/sda3 none luks\n", "", "device busy"},
		"no device has the label":                    {"/dev/disk/by-partlabel/data", "data PARTLABEL=data none luks\n", "", "find the device"},
		"no device has the UUID on the command line": {"/dev/disk/by-uuid/1234", "", " rd.luks.name=1234=root", "find the device"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := rig.New(t, rig.Debian)
			m.Write("/sys/class/tpm/tpm0/tpm_version_major", "2\n")
			m.Write("/dev/sda3", "")
			m.Write(tpm.Crypttab, test.crypttab)
			m.Write(loader.CommandLine, strings.TrimSpace(m.Read(loader.CommandLine))+test.cmdline+"\n")
			m.Write(loader.DefaultFile, m.Read(loader.DefaultFile)+`GRUB_CMDLINE_LINUX="`+test.cmdline+"\"\n")
			m.MakeGrubCfg()
			m.Commands.Fail = map[string]error{"cryptsetup": errors.New("device busy")}
			before := hosttest.ReadTree(t, m.Dir, "/boot", "/etc")
			if err := m.Subject.Apply(t.Context(), rig.Settings(rig.Ihash, rig.Seed)); err == nil || !strings.Contains(err.Error(), test.message) {
				t.Errorf("error: got %v", err)
			}
			rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Failed, "check whether "+test.device)
			if diff := gocmp.Diff(before, hosttest.ReadTree(t, m.Dir, "/boot", "/etc")); diff != "" {
				t.Errorf("changed (-want +got):\n%s", diff)
			}
		})
	}
}

// An argument that was staged before a volume was bound must not be removed without warning either.
func TestBoundVolumePreventsRemovalOfAnArgument(t *testing.T) {
	m := rig.New(t, rig.Debian)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed, "audit", "0"))
	m.Boot(16777216)
	m.Write("/sys/class/tpm/tpm0/tpm_version_major", "2\n")
	m.Write("/dev/sda3", "")
	m.Write(tpm.Crypttab, "data /dev/sda3 none luks\n")
	m.Commands.Output = map[string]string{
		"cryptsetup luksDump --dump-json-metadata /dev/sda3": `{"tokens":{"0":{"type":"systemd-tpm2","tpm2-pcrs":[8]}}}`,
	}
	m.Apply(rig.Settings(rig.Ihash, rig.Seed, "audit", "0"))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync)
	for _, less := range [][]host.Setting{rig.Settings(rig.Ihash, rig.Seed), nil} {
		if err := m.Subject.Apply(t.Context(), less); err == nil || !strings.Contains(err.Error(), "PCR 8") {
			t.Errorf("error: got %v", err)
		}
		rig.Expect(t, m.Restore("audit", host.Original{}), host.Failed, "PCR 8")
	}
}
