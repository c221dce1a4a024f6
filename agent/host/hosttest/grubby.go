package hosttest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host/hosttest/grub"
)

// SedLeftover is the name of the file that remains if grubby is killed within a "sed -i". sed itself uses "sed" and six letters.
const SedLeftover = "sedAbCdEf"

// noDefaultFile is the option without which grubby edits /etc/default/grub. Not every version of its script knows it.
const noDefaultFile = "--no-etc-grub-update"

// blsDirectory is the option with the directory of the entries.
const blsDirectory = "--bls-directory"

// grubbyValues contains the simulated options of grubby's script. The value is true if an option takes a value.
var grubbyValues = map[string]bool{
	"--update-kernel": true, "--info": true, "--args": true, "--remove-args": true, noDefaultFile: false, "--grub2": false, blsDirectory: true,
}

// grubbyRun is one run of the simulated grubby. It behaves like the real script as recorded in testdata/grubby.json:
//
//   - It parses its options twice, once by getopt and once by hand.
//   - It treats arguments as regular expressions, and replaces runs of blanks with one.
//   - It treats every line of /etc/default/grub that starts with GRUB_CMDLINE_LINUX as that variable.
//   - It creates /etc/kernel/cmdline if there is none, and syncs no file.
//
// Entries are ordered by name.
type grubbyRun struct {
	dir     string
	entries []string
	// update, info, add and remove are the values of the options. keepDefaults is set by the option without a value.
	update, info, add, remove string
	// from is the directory of the entries.
	from         string
	keepDefaults bool
	beforeWrite  func() error
}

// write writes a file in place, which empties it first.
func (g *grubbyRun) write(file, data string) error {
	if g.beforeWrite == nil {
		return os.WriteFile(file, []byte(data), 0o644)
	}
	if err := g.beforeWrite(); err != nil {
		return err
	}
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		return err
	}
	if err := g.beforeWrite(); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(data), 0o644)
}

// grubbyError is the script's message on stderr before it exits with 1.
type grubbyError string

func (e grubbyError) Error() string { return string(e) }

func (c *Commands) runGrubby(args []string) ([]byte, error) {
	output, err := playGrubby(c.Dir, args, c.BeforeWrite)
	if err != nil {
		return nil, fmt.Errorf("run grubby %s: exit status 1: %w", strings.Join(args, " "), err)
	}
	if c.AfterGrubby != nil && output == "" {
		c.AfterGrubby()
	}
	return []byte(output), nil
}

func playGrubby(dir string, args []string, beforeWrite func() error) (string, error) {
	script, err := os.ReadFile(filepath.Join(dir, "usr", "sbin", "grubby"))
	if err != nil {
		return "", err
	}
	if len(args) == 0 {
		return "", grubbyError("no action specified")
	}
	words, err := getopt(args, strings.Contains(string(script), noDefaultFile[2:]))
	if err != nil {
		return "", err
	}
	g := grubbyRun{dir: dir, from: "/boot/loader/entries", beforeWrite: beforeWrite}
	if err := g.readOptions(words); err != nil {
		return "", err
	}
	if g.update == "" && g.add+g.remove != "" {
		return "", grubbyError("no action specified")
	}
	if g.entries, err = filepath.Glob(g.path(g.from + "/*.conf")); err != nil {
		return "", err
	}
	slices.Reverse(g.entries)
	// As in "sort -V", a tilde sorts before everything else.
	slices.SortStableFunc(g.entries, func(a, b string) int {
		return strings.Count(filepath.Base(a)[:1], "~") - strings.Count(filepath.Base(b)[:1], "~")
	})
	for _, value := range []string{g.info, g.update} {
		if value != "" && value != "ALL" {
			return "", grubbyError("hosttest: of grubby's entries only ALL are simulated, not " + value)
		}
	}
	if g.info != "" {
		return g.infoText()
	}
	if g.update == "" || g.add+g.remove == "" {
		return "", nil
	}
	return "", g.updateAll()
}

// getopt converts options to the form in which the script reads them: the value is a separate word, and "--" ends the options.
func getopt(args []string, knowsNoDefault bool) ([]string, error) {
	var words, operands []string
	for i := 0; i < len(args); i++ {
		name, value, joined := strings.Cut(args[i], "=")
		if !strings.HasPrefix(name, "-") {
			operands = append(operands, args[i])
			continue
		}
		takesValue, known := grubbyValues[name]
		switch {
		case !known || name == noDefaultFile && !knowsNoDefault:
			return nil, grubbyError("grubby: unrecognized option '" + name + "'")
		case !takesValue && joined:
			return nil, grubbyError("grubby: option '" + name + "' doesn't allow an argument")
		case takesValue && !joined && i+1 == len(args):
			return nil, grubbyError("grubby: option '" + name + "' requires an argument")
		case takesValue && !joined:
			i++
			value = args[i]
		}
		words = append(words, name)
		if takesValue {
			words = append(words, value)
		}
	}
	return append(append(words, "--"), operands...), nil
}

// readOptions reads the output of getopt like the script, which also consumes the word after "--no-etc-grub-update".
func (g *grubbyRun) readOptions(words []string) error {
	for len(words) > 0 && words[0] != "--" {
		word, value := words[0], ""
		consumed := 1
		if len(words) > 1 && word != "--grub2" {
			value, consumed = words[1], 2
		}
		switch word {
		case "--update-kernel":
			g.update = value
		case "--info":
			g.info = value
		case "--args":
			g.add = value
		case "--remove-args":
			g.remove = value
		case blsDirectory:
			g.from = value
		case noDefaultFile:
			g.keepDefaults = true
		case "--grub2":
		default:
			return grubbyError("grubby: invalid option \"" + word + "\"\nTry 'grubby --help' for more information")
		}
		words = words[consumed:]
	}
	return nil
}

func (g *grubbyRun) path(name string) string { return filepath.Join(g.dir, name) }

func (g *grubbyRun) updateAll() error {
	if err := g.updateDefaults(); err != nil {
		return err
	}
	former := make([]string, len(g.entries))
	for i, file := range g.entries {
		var err error
		if former[i], err = g.optionsOf(file); err != nil {
			return err
		}
	}
	if err := g.updateBlock(); err != nil {
		return err
	}
	for i, file := range g.entries {
		if slices.Contains(strings.Fields(former[i]), kernelOpts) {
			continue
		}
		if err := g.replaceLines(file, "options", "options "+g.change(former[i])); err != nil {
			return err
		}
	}
	last := ""
	if len(former) > 0 {
		last = former[len(former)-1]
	}
	return g.updateCommandLine(last)
}

// kernelOpts is the variable of the environment block that an entry's options may reference.
const kernelOpts = "$kernelopts"

func (g *grubbyRun) optionsOf(file string) (string, error) {
	data, err := os.ReadFile(file)
	return strings.Join(strings.Fields(entryField(string(data), "options")), " "), err
}

func entryField(entry, name string) string {
	for line := range strings.Lines(entry) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimRight(value, "\n")
		}
	}
	return ""
}

// expand replaces the variable with the value of kernelopts, if it has one.
func (g *grubbyRun) expand(options string) string {
	if value := g.blockValue(); value != "" && slices.Contains(strings.Fields(options), kernelOpts) {
		return strings.Replace(options, kernelOpts, value, 1)
	}
	return options
}

const grubby2Env = "/boot/grub2/grubenv"

func (g *grubbyRun) blockValue() string {
	data, err := os.ReadFile(g.path(grubby2Env))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, "kernelopts="); ok {
			return strings.TrimRight(value, "\n")
		}
	}
	return ""
}

func (g *grubbyRun) updateBlock() error {
	value := g.blockValue()
	if value == "" {
		return nil
	}
	data, err := os.ReadFile(g.path(grubby2Env))
	if err != nil {
		return err
	}
	text := strings.Replace(strings.TrimRight(string(data), "#"), "kernelopts="+value, "kernelopts="+g.change(value), 1)
	return g.write(g.path(grubby2Env), grub.PadBlock(text))
}

// updateDefaults replaces every line that starts with GRUB_CMDLINE_LINUX with the changed value of that variable.
func (g *grubbyRun) updateDefaults() error {
	file := g.path("/etc/default/grub")
	data, err := os.ReadFile(file)
	if os.IsNotExist(err) || g.keepDefaults {
		return nil
	}
	if err != nil {
		return err
	}
	_, value, found := strings.Cut("\n"+string(data), "\nGRUB_CMDLINE_LINUX=")
	value, _, _ = strings.Cut(value, "\n")
	if value = strings.Trim(value, `"`); !found || value == "" {
		return nil
	}
	return g.replaceLines(file, "GRUB_CMDLINE_LINUX", `GRUB_CMDLINE_LINUX="`+g.change(value)+`"`)
}

// updateCommandLine changes the arguments of later kernels. The script writes the file in place, and only one line of it. If the file's directory is
// missing, the script continues.
func (g *grubbyRun) updateCommandLine(options string) error {
	file := g.path("/etc/kernel/cmdline")
	if _, err := os.Stat(filepath.Dir(file)); os.IsNotExist(err) {
		return nil
	}
	data, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		data, err = []byte(g.expand(options)), g.write(file, g.expand(options)+"\n")
	}
	if err != nil {
		return err
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return g.write(file, g.change(line)+"\n")
}

// change applies the changes of one run to a list of arguments. Arguments to remove, and names of arguments to add, are regular expressions. An
// argument with a value is removed once.
func (g *grubbyRun) change(args string) string {
	args = oneBlank(args)
	for _, arg := range strings.Fields(g.remove) {
		if !strings.Contains(arg, "=") {
			args = removeNamed(args, arg)
		} else if at := compileArgument(arg, `([[:space:]]|$)`).FindStringIndex(args); at != nil {
			args = oneBlank(args[:at[0]] + " " + args[at[1]:])
		}
	}
	for _, arg := range strings.Fields(g.add) {
		name, _, _ := strings.Cut(arg, "=")
		args = removeNamed(args, name)
	}
	return oneBlank(args + " " + g.add)
}

func oneBlank(args string) string { return strings.Join(strings.Fields(args), " ") }

func removeNamed(args, name string) string {
	return oneBlank(compileArgument(name, `(([[:space:]]|$)|([=][^ ]*([$]*)))`).ReplaceAllString(args, " "))
}

// compileArgument returns the pattern of an argument. The longest match wins, as in sed.
func compileArgument(arg, end string) *regexp.Regexp {
	return regexp.MustCompilePOSIX(`(^|[[:space:]])` + arg + end)
}

// replaceLines replaces every line that starts with a prefix. Like "sed -i", it writes a new file with the mode of the previous one, renames
// it, and does not sync it.
func (g *grubbyRun) replaceLines(file, prefix, with string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	lines := strings.Split(string(data), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, prefix) {
			lines[i] = with
		}
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	temp := filepath.Join(filepath.Dir(file), SedLeftover)
	if err := os.WriteFile(temp, []byte(strings.Join(lines, "\n")), info.Mode().Perm()); err != nil {
		return err
	}
	if g.beforeWrite != nil {
		if err := g.beforeWrite(); err != nil {
			return err
		}
	}
	return os.Rename(temp, file)
}

func (g *grubbyRun) infoText() (string, error) {
	var b strings.Builder
	for i, file := range g.entries {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		entry := string(data)
		args, root := strings.Fields(g.expand(oneBlank(entryField(entry, "options")))), ""
		if at := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "root=") }); at >= 0 {
			root = "root=\"" + strings.TrimPrefix(args[at], "root=") + "\"\n"
			args = slices.Delete(args, at, at+1)
		}
		fmt.Fprintf(&b, "index=%d\nkernel=\"/boot%s\"\nargs=\"%s\"\n%sinitrd=\"/boot%s\"\ntitle=\"%s\"\nid=\"%s\"\n",
			i, entryField(entry, "linux"), strings.Join(args, " "), root, entryField(entry, "initrd"), entryField(entry, "title"),
			strings.TrimSuffix(filepath.Base(file), ".conf"))
	}
	return b.String(), nil
}
