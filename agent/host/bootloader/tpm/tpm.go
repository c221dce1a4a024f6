// Package tpm finds encrypted volumes that open only with the present kernel arguments.
package tpm

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/agent/host/bootloader/loader"
)

// Crypttab lists the encrypted volumes.
const Crypttab = "/etc/crypttab"

// measuredArguments are the TPM registers that change with the kernel command line. GRUB measures its commands and the command line into 8. It
// measures the files that it reads, grub.cfg and the entries, into 9. The kernel's stub and systemd-stub measure the initrd into 9 and the command
// line into 12 (UAPI Group, Linux TPM PCR Registry).
var measuredArguments = []int{8, 9, kernelConfig}

const kernelConfig = 12

type volume struct {
	device  string
	options []string
}

// FindBoundVolume returns a message about an encrypted volume that would no longer open automatically after a boot with other arguments. Empty if no
// volume is bound to the registers into which arguments are measured. It returns an error if that is unknown.
func FindBoundVolume(ctx context.Context, h *loader.Host) (string, error) {
	if tpms, err := h.FS.Glob("/sys/class/tpm", "tpm*"); err != nil || len(tpms) == 0 {
		return "", err
	}
	volumes, err := encryptedVolumes(h)
	if err != nil {
		return "", err
	}
	var unknown error
	for _, v := range volumes {
		registers, err := registersOf(ctx, h, v)
		if err != nil && unknown == nil {
			unknown = fmt.Errorf("check whether %s is bound to the kernel arguments: %w", v.device, err)
		}
		for _, register := range measuredArguments {
			if slices.Contains(registers, register) {
				return fmt.Sprintf("not staged: %s is unlocked by TPM PCR %d, which measures kernel arguments; "+
					"after a change it would request a passphrase at boot: bind it to PCR 7 instead, or enroll a recovery key first", v.device, register), nil
			}
		}
	}
	return "", unknown
}

// luksArguments are the arguments that name volumes, without "rd.", and the tags of these names.
var luksArguments = map[string]string{"luks.uuid": "UUID=", "luks.name": "UUID=", "luks.options": "UUID=", "luks.partuuid": "PARTUUID="}

// volumeOptions matches a value of luks.options that is for one volume. Others are for all volumes on the command line.
var volumeOptions = regexp.MustCompile(`^(luks-)?[0-9A-Fa-f-]+=`)

// encryptedVolumes returns the volumes in /etc/crypttab and on the command line.
func encryptedVolumes(h *loader.Host) ([]volume, error) {
	data, err := h.FS.ReadIfThere(Crypttab)
	if err != nil {
		return nil, err
	}
	var volumes []volume
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		v := volume{device: loader.DeviceName(fields[1])}
		if len(fields) > 3 {
			v.options = strings.Split(fields[3], ",")
		}
		if !slices.ContainsFunc(v.options, func(o string) bool { return o == "plain" || o == "swap" || o == "tmp" || strings.HasPrefix(o, "tmp=") }) {
			volumes = append(volumes, v)
		}
	}
	line, err := h.ReadCommandLine()
	named, common := len(volumes), []string(nil)
	for _, arg := range line {
		name := strings.TrimPrefix(arg.Name, "rd.")
		tag, isVolume := luksArguments[name]
		id, rest, _ := strings.Cut(strings.TrimPrefix(arg.Value, "luks-"), "=")
		switch v := (volume{device: loader.DeviceName(tag + id)}); {
		case !isVolume || id == "":
		case name != "luks.options":
			volumes = append(volumes, v)
		case volumeOptions.MatchString(arg.Value):
			v.options = strings.Split(rest, ",")
			volumes = append(volumes, v)
		default:
			common = append(common, strings.Split(arg.Value, ",")...)
		}
	}
	for i := range volumes[named:] {
		volumes[named+i].options = append(volumes[named+i].options, common...)
	}
	return volumes, err
}

// registersOf returns the PCRs to which a volume is bound by its options or its tokens.
func registersOf(ctx context.Context, h *loader.Host, v volume) ([]int, error) {
	var registers []int
	for _, option := range v.options {
		if list, ok := strings.CutPrefix(option, "tpm2-pcrs="); ok {
			registers = append(registers, registerList(list)...)
		}
	}
	if !h.FS.Exists(v.device) {
		if slices.Contains(v.options, "nofail") || slices.Contains(v.options, "noauto") {
			return registers, nil
		}
		return registers, fmt.Errorf("find the device: %w", fs.ErrNotExist)
	}
	metadata, err := h.Runner.Run(ctx, "cryptsetup", "luksDump", "--dump-json-metadata", v.device)
	if err == nil {
		of, err := tokenRegisters(metadata)
		return append(registers, of...), err
	}
	// LUKS1 has no tokens. Clevis stores its metadata next to the header.
	list, clevisErr := h.Runner.Run(ctx, "clevis", "luks", "list", "-d", v.device)
	if errors.Is(clevisErr, exec.ErrNotFound) && isLUKS1(err) {
		return registers, nil
	}
	if clevisErr != nil {
		return nil, err
	}
	return append(registers, clevisList(string(list))...), nil
}

// isLUKS1 recognizes cryptsetup's error about a header without JSON metadata.
func isLUKS1(err error) bool { return strings.Contains(err.Error(), "LUKS2") }

// tokenRegisters returns the PCRs in the tokens of a LUKS2 header. It reads the tokens of systemd-cryptenroll and of Clevis.
func tokenRegisters(metadata []byte) ([]int, error) {
	var header struct {
		Tokens map[string]struct {
			Type   string `json:"type"`
			PCRs   []int  `json:"tpm2-pcrs"`
			Signed []int  `json:"tpm2_pubkey_pcrs"`
			// Predicted reports whether the policy is from systemd-pcrlock, which has other registers than the token.
			Predicted bool `json:"tpm2_pcrlock"`
			JWE       struct {
				Protected string `json:"protected"`
			} `json:"jwe"`
		} `json:"tokens"`
	}
	if err := json.Unmarshal(metadata, &header); err != nil {
		return nil, fmt.Errorf("parse LUKS2 metadata: %w", err)
	}
	var registers []int
	for _, token := range header.Tokens {
		registers = append(append(registers, token.PCRs...), token.Signed...)
		if token.Predicted {
			registers = append(registers, kernelConfig)
		}
		if token.Type != "clevis" {
			continue
		}
		of, err := clevisRegisters(token.JWE.Protected)
		if err != nil {
			return nil, err
		}
		registers = append(registers, of...)
	}
	return registers, nil
}

// clevisPin is one way to open a volume. "sss" contains other pins, any of which may be the TPM.
type clevisPin struct {
	Pin  string `json:"pin"`
	TPM2 struct {
		PCRs string `json:"pcr_ids"`
	} `json:"tpm2"`
	SSS struct {
		JWE []string `json:"jwe"`
	} `json:"sss"`
}

// clevisRegisters returns the PCRs in the protected header of a JWE and in its inner JWEs.
func clevisRegisters(protected string) ([]int, error) {
	data, err := base64.RawURLEncoding.DecodeString(protected)
	if err != nil {
		return nil, fmt.Errorf("parse Clevis token: %w", err)
	}
	var header struct {
		Clevis clevisPin `json:"clevis"`
	}
	if err := json.Unmarshal(data, &header); err != nil {
		return nil, fmt.Errorf("parse Clevis token: %w", err)
	}
	registers := registerList(header.Clevis.TPM2.PCRs)
	for _, inner := range header.Clevis.SSS.JWE {
		protected, _, _ := strings.Cut(inner, ".")
		of, err := clevisRegisters(protected)
		if err != nil {
			return nil, err
		}
		registers = append(registers, of...)
	}
	return registers, nil
}

// clevisList parses "clevis luks list": 1: tpm2 '{"hash":"sha256","key":"ecc","pcr_ids":"7,8"}'.
func clevisList(text string) []int {
	var registers []int
	for part := range strings.SplitSeq(text, `"pcr_ids":"`) {
		ids, _, found := strings.Cut(part, `"`)
		if found {
			registers = append(registers, registerList(ids)...)
		}
	}
	return registers
}

var registerNames = map[string]int{"kernel-initrd": 9, "kernel-config": 12}

// registerList parses lists of PCRs as Clevis and systemd write them: "7,8", "7+12:sha256=...", "7+kernel-config".
func registerList(list string) []int {
	var registers []int
	for _, item := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == '+' }) {
		item, _, _ = strings.Cut(strings.TrimSpace(item), ":")
		if n, named := registerNames[item]; named {
			registers = append(registers, n)
		} else if n, err := strconv.Atoi(item); err == nil {
			registers = append(registers, n)
		}
	}
	return registers
}
