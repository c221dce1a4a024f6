package view

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/servermap"
	"github.com/storageclient/operator/tuning/text"
)

// ServerReport is the output of "servers".
type ServerReport struct {
	Servers []servermap.Server `json:"servers"`
}

// Names returns the names of the servers, which are not API objects.
func (r ServerReport) Names() []string {
	return lists.Each(r.Servers, func(s servermap.Server) string { return s.Server })
}

// WriteText prints the servers for users. If wide is set, tables have all columns.
func (r ServerReport) WriteText(w io.Writer, wide bool) error {
	out := &printer{w: w}
	if len(r.Servers) == 0 {
		out.line("No managed node mounts a storage server.")
		return out.err
	}
	header := []string{"SERVER", "PROTOCOL", "NODES", "CONNECTIONS", "REQUESTS", "VOLUMES", "NO-RESPONSE"}
	if wide {
		header = append(header, "VERSIONS", "DIFFERENT-OPTIONS")
	}
	writeTable(out, header, r.Servers, func(s servermap.Server) []string {
		options := lists.Each(s.Variants, func(v servermap.Variant) string { return v.Option })
		return []string{
			s.Server, string(s.Protocol), strconv.Itoa(s.Nodes), ofLimit(int64(s.Connections), s.ConnectionsLimit), ofLimit(s.RequestsPossible, s.RequestsLimit),
			strconv.Itoa(len(s.Volumes)), failingText(s), strings.Join(s.Versions, ","), strings.Join(options, ","),
		}
	})
	for _, s := range r.Servers {
		out.lines("\n"+s.Server+": ", remarksOf(s))
	}
	return out.err
}

func ofLimit(n, limit int64) string {
	switch {
	case limit > 0:
		return fmt.Sprintf("%d of %d", n, limit)
	case n == 0:
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func failingText(s servermap.Server) string {
	if len(s.Failing) == 0 {
		return ""
	}
	return text.Count(len(s.Failing), "node")
}

// remarksOf describes the problems of a server, most severe first.
func remarksOf(s servermap.Server) []string {
	var remarks []string
	cause := func(f servermap.Failing) string { return fmt.Sprintf("%s, %s: %s", f.State, f.Reason, f.Message) }
	for _, group := range lists.Group(s.Failing, cause) {
		nodes := lists.Each(group, func(f servermap.Failing) string { return f.Node })
		remarks = append(remarks, strings.TrimSuffix(cause(group[0]), ".")+"; nodes: "+text.List(nodes))
	}
	if len(s.Stale) > 0 {
		remarks = append(remarks,
			"All requests for known files fail on some mounts; check the export, then restart the pods that use them; nodes: "+text.List(s.Stale))
	}
	for _, same := range s.DuplicateClientIDs {
		remarks = append(remarks, fmt.Sprintf("Nodes %s use the same NFSv4 client ID %q; set node.nfs4UniqueID: FromNode",
			text.List(same.Nodes), same.Name))
	}
	if len(s.Forgotten) > 0 {
		remarks = append(remarks,
			"The server repeatedly drops clients with a duplicate NFSv4 client ID: "+text.List(s.Forgotten)+"; set node.nfs4UniqueID: FromNode")
	}
	if over := s.Exceeds(); over != "" {
		remarks = append(remarks, "The nodes can exceed the limits of the server: "+over)
	}
	for _, v := range s.Variants {
		remarks = append(remarks, "Mounts differ in "+v.String())
	}
	return remarks
}
