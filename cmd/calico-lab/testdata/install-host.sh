# One host of TestInstallPage: $1 its name, $2 the directory of the page's blocks, $3 where the hosts wait for each other.
set -u
name=$1 blocks=$2 meet=$3
mount --make-rprivate /
hostname "$name"
mount -t sysfs sysfs /sys
for dir in /etc/calico /etc/cni /opt/cni /var/lib/calico /run/calico /run/netns /usr/local/bin /etc/systemd/system /var/log; do
	mkdir -p $dir && mount -t tmpfs none $dir
done
touch /tmp/net.conf "$meet/$name.conf" && mount --bind "$meet/$name.conf" /tmp/net.conf # the hosts share /tmp
export PATH=/usr/local/bin:$PATH
page() { . "$blocks/$1"; }
# meet waits until both hosts are here.
meet() {
	: >"$meet/$name.$1"
	for _ in $(seq 600); do [ -e "$meet/h1.$1" ] && [ -e "$meet/h2.$1" ] && return; sleep 0.1; done
	echo "waited for the other host at $1"; exit 1
}
state() {
	ip -br link | cut -d' ' -f1
	for family in -4 -6; do ip $family route show table all | grep -v -E 'proto kernel|multicast'; done
	nft list tables
	find /etc/calico /etc/cni /opt/cni /var/lib/calico /run/calico /usr/local/bin /var/log ! -type d
}
state >"$meet/$name.before"
for part in once plugins agent start ready conflist; do page $part; done
was=$(stat -c '%n %i' /opt/cni/bin/calico /opt/cni/bin/calico-ipam /usr/local/bin/calico-node)
page upgrade
is=$(stat -c '%n %i %a' /opt/cni/bin/calico /opt/cni/bin/calico-ipam /usr/local/bin/calico-node)
echo "$is" | grep -c ' 755$' | sed 's/^/replaced: /'
echo "$was" | while read -r file; do echo "$is" | grep -q "^$file " && echo "still the old one: $file"; done
page try >"$meet/$name.try" 2>&1 || cat "$meet/$name.try"
meet tried
if [ "$name" = h2 ]; then
	for address in $(sed -n 's|.*"address": "\(.*\)/.*|\1|p' "$meet/h1.try"); do
		case $address in *:*) url="http://[$address]:9" ;; *) url="http://$address:9" ;; esac
		answer=silence
		for _ in $(seq 50); do # nothing listens there, so what answers refuses
			ip netns exec try curl -s -v -m 1 "$url" 2>&1 | grep -q 'Connection refused' && answer=yes && break
			sleep 0.2
		done
		echo "$address answers: $answer"
	done
fi
meet reached
page away
meet left
page drained
kill $! && wait $!
for part in kernel files; do page $part 2>&1 | grep -v 'Device or resource busy'; done # what is mounted here stays, empty
page etcd
state >"$meet/$name.after"
diff "$meet/$name.before" "$meet/$name.after" && echo "$name is as before"
