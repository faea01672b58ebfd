// SPDX-License-Identifier: Apache-2.0

package diags

import "testing"

func TestRedact(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"etcd_password": "pa\"ss", "etcd_key_file": "/etc/key.pem"}`, `{"etcd_password": "<removed>", "etcd_key_file": "/etc/key.pem"}`},
		{`{"policy":{"type":"k8s","k8s_auth_token":"abc.def"},"password_file":"/etc/secret"}`, `{"policy":{"type":"k8s","k8s_auth_token":"<removed>"},"password_file":"/etc/secret"}`},
		{"user:\n  token: eyJhb.x-y\n  client-key-data: LS0tLS1=\n  name: a\n", "user:\n  token: <removed>\n  client-key-data: <removed>\n  name: a\n"},
		{"spec:\n  etcdPasswordFile: /etc/calico/password\n  password: ''\n", "spec:\n  etcdPasswordFile: /etc/calico/password\n  password: '<removed>'\n"},
		{"ETCD_PASSWORD=hush\nETCD_PASSWORD_FILE=/x\n", "ETCD_PASSWORD=<removed>\nETCD_PASSWORD_FILE=/x\n"},
		{"dial https://root:hush@10.0.0.1:2379: refused", "dial https://root:<removed>@10.0.0.1:2379: refused"},
		{"Authorization: Bearer eyJ.hbG-c_i", "Authorization: Bearer <removed>"},
		{"a\n-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----\nb", "a\n<removed>\nb"},
		{`{"etcd_key": "-----BEGIN RSA PRIVATE KEY-----\nMHcC\n-----END RSA PRIVATE KEY-----\n"}`, `{"etcd_key": "<removed>\n"}`},
		{`{"password":null,"secret":""}`, `{"password":null,"secret":""}`},
		{"peer tcp dport 179 accept # 10.0.0.1:179", "peer tcp dport 179 accept # 10.0.0.1:179"},
		{"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"},
	} {
		got := string(redact([]byte(c.text)))
		if got != c.want {
			t.Errorf("%q\nbecame %q\nwant   %q", c.text, got, c.want)
		}
		if again := string(redact([]byte(got))); again != got {
			t.Errorf("%q\nbecame %q at the second time", got, again)
		}
	}
}
