//go:build gitops

package gitops

import (
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/storageclient/operator/test/check"
)

// repository is a Git repository that is served over smart HTTP on loopback.
type repository struct {
	work, url, host string
	files           http.Dir
}

func startRepository(t *testing.T) *repository {
	t.Helper()
	base := t.TempDir()
	r := &repository{work: filepath.Join(base, "work"), files: http.Dir(filepath.Join(base, "files"))}
	bare := filepath.Join(base, "git", "platform.git")
	git(t, base, "init", "--quiet", "--bare", "--initial-branch=main", bare)
	git(t, base, "clone", "--quiet", bare, r.work)
	check.NoError(t, os.Mkdir(string(r.files), 0o755))
	program, err := exec.LookPath("git")
	check.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/git/", &cgi.Handler{
		Path: program, Args: []string{"http-backend"}, Root: "/git", Dir: base,
		Env: []string{"GIT_PROJECT_ROOT=" + filepath.Join(base, "git"), "GIT_HTTP_EXPORT_ALL=1", "HOME=" + base},
	})
	mux.Handle("/files/", http.StripPrefix("/files/", http.FileServer(r.files)))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check.NoError(t, err)
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	r.host = "http://" + listener.Addr().String()
	r.url = r.host + "/git/platform.git"
	return r
}

// commit writes files, removes those without content, and pushes. It returns the commit.
func (r *repository) commit(t *testing.T, subject string, files map[string]string) string {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(r.work, name)
		if content == "" {
			check.NoError(t, os.RemoveAll(path))
			continue
		}
		check.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		check.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	git(t, r.work, "add", "--all")
	git(t, r.work, "commit", "--quiet", "--allow-empty", "--message", subject)
	git(t, r.work, "push", "--quiet", "origin", "HEAD:main")
	return strings.TrimSpace(git(t, r.work, "rev-parse", "HEAD"))
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=test", "-c", "user.email=test@example.com"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	output, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, output)
	}
	return string(output)
}
