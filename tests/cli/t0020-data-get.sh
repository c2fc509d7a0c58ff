#!/bin/bash
# `der data get` against a local server that cuts, lies and is slow; the published addresses are not used.
. "$(dirname "$0")/../support/test-lib.sh"

expect_code 0 "what can be had is listed" "$DER" data get --list
for name in cifar100 cifar10 fashion-mnist; do
    check "$name is" grep -q "^$name " out
done
check "with sizes" grep -q '168.5 MB to download, 184.4 MB on the disk' out
check "and licences" grep -q 'MIT licence' out

expect_code 2 "data alone is a usage error" "$DER" data
expect_code 2 "so is a part that does not exist" "$DER" data gte
check "and the right one is suggested" one_line err "did you mean 'get'"
expect_code 2 "a name and a folder are required" "$DER" data get cifar100
expect_code 2 "an unknown set is a usage error" "$DER" data get cifar1000 here
check "and the right one is suggested" one_line err "did you mean 'cifar100'"
expect_code 2 "a word too many is one" "$DER" data get cifar100 here there
check "and the message names the command" one_line err "der help data"

if "$DER" --version | grep -q '^  downloads  *not built in'; then
    expect_code 4 "a build without the libraries says what to install" "$DER" data get cifar10 here
    check "by their packages" one_line err 'libcurl4-gnutls-dev.*libarchive-dev.*nettle-dev'
    done_testing
fi

# The server, and an archive of the tests' own CIFAR-10.
mkdir www
cp -r "$root/tests/data/fixtures/cifar10_bin" cifar-10-batches-bin
tar -czf www/cifar.tar.gz cifar-10-batches-bin
sum=sha256:$(sha256sum www/cifar.tar.gz | cut -d' ' -f1)
mkfifo hold
python3 "$root/tests/support/web_server.py" "$PWD/www" <hold >port &
exec 9>hold # the server ends when this is closed
for _ in $(seq 100); do
    [ -s port ] && break
    sleep 0.1
done
web=http://127.0.0.1:$(cat port)
own=(--url "$web/plain/cifar.tar.gz" --checksum "$sum")

expect_code 0 "an archive is downloaded and unpacked" "$DER" data get cifar10 here "${own[@]}"
check "and it says so" grep -q '^here: cifar10 is complete; train with --data here' out
check "in a pipe there is no progress" test ! -s err
check "all files are there" diff -r cifar-10-batches-bin here/cifar-10-batches-bin
check "and nothing else" test "$(ls -A here)" = cifar-10-batches-bin
expect_code 0 "it can be checked" "$DER" data check here
check "and is what it is" grep -q '^here: cifar10, 10 classes' out
rm -f www/log
expect_code 0 "what is there is recognised" "$DER" data get cifar10 here "${own[@]}"
check "and it says so" grep -q 'was there already' out
check "without asking the server" test ! -e www/log
expect_code 1 "another set does not go into the same folder" "$DER" data get cifar100 here "${own[@]}"
check "which is named" one_line err 'here holds another data set'

expect_code 0 "a server that cuts is coped with" \
    "$DER" data get cifar10 cut --url "$web/cut/cifar.tar.gz" --checksum "$sum" --quiet
check "quietly" test ! -s out
check "as if it had not" diff -r cifar-10-batches-bin cut/cifar-10-batches-bin
expect_code 0 "a file address will do" \
    "$DER" data get cifar10 file --url "file://$PWD/www/cifar.tar.gz" --checksum "$sum"
check "as well" diff -r cifar-10-batches-bin file/cifar-10-batches-bin

expect_code 3 "the published file has a published checksum" \
    "$DER" data get cifar10 other --url "$web/plain/cifar.tar.gz"
check "and size" one_line err 'bytes, want 170052171'
expect_code 3 "a wrong file is refused" \
    "$DER" data get cifar10 other --url "$web/wrong/cifar.tar.gz" --checksum "$sum"
check "by its checksum" one_line err 'is not the wanted file: its SHA-256'
check "and nothing of it is left" test -z "$(ls -A other)"
expect_code 3 "a missing file is told" \
    "$DER" data get cifar10 other --url "$web/gone/cifar.tar.gz" --checksum "$sum"
check "with the server's answer" one_line err 'error 404'
expect_code 3 "a dead server is told" \
    "$DER" data get cifar10 other --url http://127.0.0.1:1/x --checksum "$sum"
check "in one line" one_line err '127.0.0.1:1'
expect_code 3 "a stalling server is given up" "$DER" data get cifar10 other \
    --url "$web/silent/cifar.tar.gz" --checksum "$sum" --timeout 1 --retries 0
check "after the time that was asked for" one_line err 'after 0 bytes'
expect_code 2 "a checksum wants an address" "$DER" data get cifar10 other --checksum "$sum"
expect_code 2 "what is no checksum is a usage error" \
    "$DER" data get cifar10 other --url "$web/plain/cifar.tar.gz" --checksum md5:xyz
expect_code 2 "four files have no checksum of one's own" \
    "$DER" data get fashion-mnist other --url "$web/plain" --checksum "$sum"
expect_code 0 "a folder is made with those it lies in" "$DER" data get cifar10 some/where "${own[@]}"
check "and has the files" diff -r cifar-10-batches-bin some/where/cifar-10-batches-bin
echo text >some/file
expect_code 3 "a folder in a file is told" "$DER" data get cifar10 some/file/where "${own[@]}"
check "in one line" one_line err some/file

# An archive that wants out.
python3 - <<'END'
import io, tarfile
with tarfile.open("www/evil.tar.gz", "w:gz") as archive:
    entry = tarfile.TarInfo("../evil")
    entry.size = 4
    archive.addfile(entry, io.BytesIO(b"evil"))
END
expect_code 3 "an archive that leaves its folder is refused" "$DER" data get cifar10 other \
    --url "$web/plain/evil.tar.gz" --checksum "sha256:$(sha256sum www/evil.tar.gz | cut -d' ' -f1)"
check "and the path is named" one_line err "'../evil'"
check "nothing is written" test ! -e evil -a -z "$(ls -A other)"

# Archives of the right name that hold a part of the set, or another one.
mkdir part another
cp -r cifar-10-batches-bin part
rm part/cifar-10-batches-bin/data_batch_2.bin
cp -r "$root/tests/data/fixtures/cifar100_bin" another/cifar-10-batches-bin
for kind in part another; do
    tar -czf www/$kind.tar.gz -C $kind cifar-10-batches-bin
    expect_code 3 "an archive with $kind set is refused" "$DER" data get cifar10 other \
        --url "$web/plain/$kind.tar.gz" --checksum "sha256:$(sha256sum www/$kind.tar.gz | cut -d' ' -f1)"
    check "and it says what it is" one_line err "$kind.tar.gz is not cifar10: .*\(data_batch_2\|cifar100, 100 classes\)"
    check "nothing is put in place" test -z "$(ls -A other)"
done

# A disk that is full: here, a limit on the size of files.
expect_code 3 "a full disk is told" bash -c 'trap "" XFSZ; ulimit -f 8; "$@"' sh \
    "$DER" data get cifar10 full "${own[@]}"
check "in one line" one_line err 'File too large; what came so far is kept'
check "what came stays" test -s full/cifar-10-binary.tar.gz.part
expect_code 0 "and is gone on with" "$DER" data get cifar10 full "${own[@]}"
check "to the end" diff -r cifar-10-batches-bin full/cifar-10-batches-bin
check "from where it stopped" sh -c 'tail -n 1 www/log | grep -q "bytes=[0-9]"'

# Ctrl-C.
"$DER" data get cifar10 slow --url "$web/trickle/cifar.tar.gz" --checksum "$sum" >out 2>err &
pid=$!
for _ in $(seq 100); do
    [ -s slow/cifar-10-binary.tar.gz.part ] && break
    sleep 0.1
done
kill -INT "$pid"
wait "$pid"
code=$?
check "an interrupted download exits with 1" test "$code" -eq 1
check "and says how to go on" one_line err 'stopped after .* the same command goes on from there'
expect_code 0 "which is true" "$DER" data get cifar10 slow "${own[@]}"
check "to the end" diff -r cifar-10-batches-bin slow/cifar-10-batches-bin
check "from where it stopped" sh -c 'tail -n 1 www/log | grep -q "bytes=[0-9]"'

# A terminal sees how far it is.
if command -v script >/dev/null; then
    script -qec "$DER data get cifar10 seen --url $web/trickle/cifar.tar.gz --checksum $sum" seen.log >/dev/null
    check "a terminal sees progress" grep -q 'cifar-10-binary.tar.gz: .* MB .* MB/s' seen.log
else
    skip "a terminal sees progress" "no script(1)"
fi

exec 9>&-
wait
done_testing
