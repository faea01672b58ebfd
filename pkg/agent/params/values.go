// SPDX-License-Identifier: Apache-2.0

package params

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/daemon/logfile"
	"github.com/calico-go/calico/pkg/daemon/serving"
	"github.com/calico-go/calico/pkg/nft"
	"github.com/calico-go/calico/pkg/policy"
)

// values describes a parameter's values: the name of the type, the allowed range, and how one is parsed. After an error the field's content
// is undefined.
type values struct {
	Name, Allowed string
	set           func(*Params, string) error
}

// read returns values parsed by a function and stored in a field.
func read[T any](name, allowed string, field func(*Params) *T, parse func(string) (T, error)) values {
	return values{name, allowed, func(p *Params, text string) (err error) {
		*field(p), err = parse(text)
		return err
	}}
}

func interfacePrefixes(field func(*Params) *[]string) values {
	return read("list", fmt.Sprintf("comma list of up to %d beginnings of interface names, up to 15 characters each", nft.MaxPrefixes), field, parsePrefixes)
}

func parsePrefixes(text string) ([]string, error) {
	var prefixes []string
	for p := range strings.SplitSeq(text, ",") {
		p = strings.TrimSpace(p)
		if p == "" {
			return nil, fmt.Errorf("interface prefixes %.64q: one is empty, and would make every interface a workload's: want a comma list like cali,tap", text)
		}
		if strings.ContainsAny(p, `*+"\`) {
			return nil, fmt.Errorf("interface prefix %.64q: a beginning of names is without wildcards and quotes: want a comma list like cali,tap", p)
		}
		if err := checkInterface(p); err != nil {
			return nil, err
		}
		if strings.HasPrefix(policy.Loopback, p) {
			return nil, fmt.Errorf("interface prefix %q: the loopback interface, %s, begins so, and would be closed as a workload's: want a comma list like cali,tap", p, policy.Loopback)
		}
		prefixes = append(prefixes, p)
	}
	slices.Sort(prefixes)
	prefixes = slices.Compact(prefixes)
	if n := len(prefixes); n > nft.MaxPrefixes {
		return nil, fmt.Errorf("%d interface prefixes: the firewall takes at most %d; give workload interfaces fewer", n, nft.MaxPrefixes)
	}
	return prefixes, nil
}

var errSeverity = errors.New("want one of DEBUG, INFO, WARNING, ERROR, CRITICAL, NONE")

func severity(field func(*Params) *slog.Level) values {
	return read("severity", "DEBUG, INFO, WARNING, ERROR, CRITICAL or NONE, in any case", field, parseSeverity)
}

func parseSeverity(text string) (slog.Level, error) {
	switch strings.ToUpper(strings.TrimSpace(text)) {
	case "DEBUG":
		return slog.LevelDebug, nil
	case "INFO":
		return slog.LevelInfo, nil
	case "WARNING":
		return slog.LevelWarn, nil
	case "ERROR":
		return slog.LevelError, nil
	case "CRITICAL":
		return slog.LevelError + 4, nil
	case "NONE":
		return logfile.LevelNone, nil
	}
	return 0, fmt.Errorf("severity %.64q: %w", text, errSeverity)
}

func seconds(least, most time.Duration, field func(*Params) *time.Duration) values {
	return read("seconds", fmt.Sprintf("%v to %v; a unit may follow, as in 500ms or 2m", least.Seconds(), most.Seconds()), field,
		func(text string) (time.Duration, error) { return parseSeconds(text, least, most) })
}

// secondsOrNever accepts 0 as well.
func secondsOrNever(least, most time.Duration, field func(*Params) *time.Duration) values {
	v := seconds(least, most, field)
	set := v.set
	v.Allowed = "0, or " + v.Allowed
	v.set = func(p *Params, text string) error {
		if d, err := parseSeconds(text, 0, 0); err == nil {
			*field(p) = d
			return nil
		}
		err := set(p, text)
		if err != nil {
			return fmt.Errorf("%w, or 0", err)
		}
		return nil
	}
	return v
}

// parseSeconds parses a number of seconds, with or without a unit.
func parseSeconds(text string, least, most time.Duration) (time.Duration, error) {
	text = strings.TrimSpace(text)
	d, err := time.ParseDuration(text)
	if seconds, plain := strconv.ParseFloat(text, 64); plain == nil {
		d, err = time.Duration(seconds*float64(time.Second)), nil
		if math.IsNaN(seconds) || seconds < 0 || seconds > most.Seconds() {
			err = errors.New("out of range")
		}
	}
	if err == nil && (d < least || d > most) {
		err = errors.New("out of range")
	}
	if err != nil {
		return 0, fmt.Errorf("time %.64q: want seconds, %v to %v", text, least.Seconds(), most.Seconds())
	}
	return d, nil
}

func boolean(field func(*Params) *bool) values {
	return read("boolean", "true or false; also yes or no, 1 or 0", field, parseBool)
}

// parseMetadata accepts an address that a server may have.
func parseMetadata(text string) (string, error) {
	text = strings.TrimSpace(text)
	if strings.EqualFold(text, "none") {
		return "", nil
	}
	a, err := netip.ParseAddr(text)
	if err != nil || !a.Is4() || a.IsUnspecified() || a.IsMulticast() || a == policy.MetadataService().Addr() {
		return "", fmt.Errorf("%.64q: want none or the IPv4 address of the server", text)
	}
	return a.String(), nil
}

func parseBool(text string) (bool, error) {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "true", "t", "yes", "y", "1":
		return true, nil
	case "false", "f", "no", "n", "0":
		return false, nil
	}
	return false, fmt.Errorf("%.64q: want true or false", text)
}

func endpointToHost(field func(*Params) *policy.EndpointToHost) values {
	return read("action", "DROP, RETURN or ACCEPT, in any case", field, func(text string) (policy.EndpointToHost, error) {
		switch action := policy.EndpointToHost(strings.ToUpper(strings.TrimSpace(text))); action {
		case policy.ToHostDrop, policy.ToHostReturn, policy.ToHostAccept:
			return action, nil
		}
		return "", fmt.Errorf("action %.64q: want DROP, RETURN or ACCEPT", text)
	})
}

// oneOf accepts one of several words.
func oneOf[T ~string](name string, field func(*Params) *T, words ...T) values {
	list := make([]string, len(words))
	for i, w := range words {
		list[i] = string(w)
	}
	want := strings.Join(list[:len(list)-1], ", ") + " or " + list[len(list)-1]
	return read(name, want+", in any case", field, func(text string) (T, error) {
		for _, w := range words {
			if strings.EqualFold(strings.TrimSpace(text), string(w)) {
				return w, nil
			}
		}
		return "", fmt.Errorf("%s %.64q: want %s", name, text, want)
	})
}

func protoPorts(field func(*Params) *[]policy.ProtoPort) values {
	return read("ports", "`none`, or a comma list of `tcp:<port>` and `udp:<port>`; a port alone is TCP's", field, policy.ParseProtoPorts)
}

// maxLogPrefix leaves room for what is appended in the kernel's log.
const maxLogPrefix = 27

func logPrefix(field func(*Params) *string) values {
	return read("text", "1 to 27 of the characters A-Z a-z 0-9 _ : -", field, func(text string) (string, error) {
		text = strings.TrimSpace(text)
		odd := strings.IndexFunc(text, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_:-", r)
		})
		switch {
		case text == "":
			return "", errors.New("the prefix is empty: want 1 to 27 characters")
		case len(text) > maxLogPrefix:
			return "", fmt.Errorf("prefix %.64q: at most %d characters", text, maxLogPrefix)
		case odd >= 0:
			return "", fmt.Errorf("prefix %.64q: byte %d is none of A-Z a-z 0-9 _ : -", text, odd+1)
		}
		return text, nil
	})
}

func logFile(field func(*Params) *string) values {
	return read("path", "`none`, or the absolute path of a file", field, func(text string) (string, error) {
		text = strings.TrimSpace(text)
		switch {
		case strings.EqualFold(text, "none"):
			return "", nil
		case !filepath.IsAbs(text) || strings.ContainsRune(text, 0) || strings.HasSuffix(text, "/"):
			return "", fmt.Errorf("file %.64q: want an absolute path, or none", text)
		}
		return filepath.Clean(text), nil
	})
}

func listenHost(field func(*Params) *string) values {
	return read("address", "an IP address of the host, `localhost`, or nothing for all addresses", field, serving.ParseHost)
}

// checkInterface refuses names that Linux doesn't allow for an interface, or that would lead out of a directory.
func checkInterface(name string) error {
	if len(name) > 15 {
		return fmt.Errorf("interface %.32q: at most 15 characters", name)
	}
	if i := strings.IndexFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' || r == ':' || r == '%' }); i >= 0 {
		return fmt.Errorf("interface %q: character %d is not allowed in a name", name, i+1)
	}
	if name == "" || name == "." || name == ".." {
		return fmt.Errorf("interface %q is not a name", name)
	}
	return nil
}
