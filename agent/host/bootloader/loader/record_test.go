package loader_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
)

func TestDropInDescribesItsContent(t *testing.T) {
	args := []host.Argument{host.NewArgument("a=1"), host.NewArgument("b")}
	forms := map[string]loader.Form{"the drop-in of GRUB": loader.DropInForm, "the record next to boot entries": loader.RecordForm}
	for name, d := range map[string]loader.Record{
		"settled":               {Present: true, Args: args},
		"with a trial":          {Present: true, Args: args, HasTrial: true, Replaces: args[:1]},
		"unfinished":            {Present: true, Args: args, Unfinished: true, Replaces: args[:1]},
		"unfinished, the first": {Present: true, Args: args, Unfinished: true},
		"unfinished, the last":  {Present: true, Unfinished: true, Replaces: args},
	} {
		t.Run(name, func(t *testing.T) {
			for formName, form := range forms {
				if diff := cmp.Diff(d, loader.ParseRecord(d.Render(form), form)); diff != "" {
					t.Errorf("%s, read back (-want +got):\n%s", formName, diff)
				}
			}
		})
	}
}
