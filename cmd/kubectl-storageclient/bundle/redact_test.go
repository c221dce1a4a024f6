package bundle

import "testing"

func TestText(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"a server and its export":           {"mount filer.example.com:/vol/eda failed", "mount server-1:source-1 failed"},
		"the same word is the same":         {"filer.example.com, filer.example.com", "server-1, server-1"},
		"a longer path is another source":   {"/vol/eda/home on /vol/eda", "source-2 on source-1"},
		"part of a longer name":             {"myfiler.example.com2 and /vol/edax", "myfiler.example.com2 and /vol/edax"},
		"a short name stays in texts":       {"nas of nas4", "nas of nas4"},
		"IPv4 addresses":                    {"from 10.1.2.3:2049 to 10.1.2.4, again 10.1.2.3", "from address-1:2049 to address-2, again address-1"},
		"IPv6 addresses":                    {"[fd00::12]:2049 and fe80:0:0:0:1:2:3:4", "[address-1]:2049 and address-2"},
		"times and MACs are no addresses":   {"at 12:30:45 02:00:5e:10:00:01", "at 12:30:45 02:00:5e:10:00:01"},
		"loopback addresses stay":           {"127.0.0.1:9810 [::1]:80 0.0.0.0", "127.0.0.1:9810 [::1]:80 0.0.0.0"},
		"a version is no address":           {"kernel 6.1.0-18, 1.2.3", "kernel 6.1.0-18, 1.2.3"},
		"a word that may mean anything":     {"the true share premium", "the true share premium"},
		"passwords and user names":          {"vers=3.1.1,username=joe,password=s3cr3t,ro", "vers=3.1.1,username=REDACTED,password=REDACTED,ro"},
		"tokens":                            {"Authorization: Bearer eyJhbGciOi.J9.x", "Authorization: Bearer REDACTED"},
		"a mount option with an address":    {"rw,addr=10.1.2.3,clientaddr=10.9.9.9", "rw,addr=address-1,clientaddr=address-2"},
		"an address at the end of sentence": {"refused by 10.1.2.3.", "refused by address-1."},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewRedactor(false)
			if r.Server("filer.example.com") != "server-1" || r.Source("/vol/eda") != "source-1" || r.Source("/vol/eda/home") != "source-2" || r.Server("nas") != "server-2" || r.Source("premium") != "source-3" {
				t.Fatal("unexpected pseudonyms")
			}
			if got := r.Text(c.text); got != c.want {
				t.Errorf("%q becomes %q, want %q", c.text, got, c.want)
			}
		})
	}
}

func TestWithoutRedactionOnlyPasswordsAreReplaced(t *testing.T) {
	r := NewRedactor(true)
	if got := r.Server("filer") + r.Source("/vol") + r.Text(" 10.1.2.3 username=joe,password=x"); got != "filer/vol 10.1.2.3 username=joe,password=REDACTED" {
		t.Errorf("got %q", got)
	}
}

func TestARootPathGetsNoPseudonym(t *testing.T) {
	if got := NewRedactor(false).Source("/"); got != "/" {
		t.Errorf("got %q", got)
	}
}
