#!/usr/bin/python3
"""abi_text.py LIBRARY HEADER: what programs compiled against a library rely on, one fact a line.

The soname and the exported functions are the library's; their types, the layout of structures and the
values of enumerators are what the compilers make of the public header. Nothing of it depends on
the version or the flags of a compiler, so the text can be kept and compared (check_abi.sh):

    soname libder.so.0.1
    enum der_split: DER_SPLIT_TEST = 1
    function der_ctx_threads: int (const struct der_ctx *)
    struct der_preset_info: 16 bytes, aligned to 8, 2 members
    struct der_preset_info: name at 0, const char *
    type der_log_fn: void (void *, enum der_log_level, const char *)

The header is read by clang, since it tells what it has read; `cc` computes the numbers.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

NAMES = re.compile("der_|DER_")


def output_of(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def parts(node, kind):
    return [part for part in node.get("inner", []) if part["kind"] == kind]


def is_ours(node):
    """By its name; enumerations without one, by those of their constants."""
    names = [part.get("name", "") for part in [node, *parts(node, "EnumConstantDecl")]]
    return any(NAMES.match(name) for name in names)


def include_flag(header):
    """For <der/x.h> to be found when the header is .../der/der.h."""
    return "-I" + os.path.dirname(os.path.dirname(os.path.abspath(header)))


def declarations(header):
    """The declarations of the library in a header and all that it includes, as clang's syntax tree."""
    tree = output_of("clang", "-std=c11", include_flag(header), "-fsyntax-only", "-Xclang", "-ast-dump=json",
                     "-x", "c", header)
    return [node for node in json.loads(tree)["inner"] if is_ours(node)]


def spelled(node):
    """A type as it is written, in one spelling whichever the version of clang."""
    text = node["type"]["qualType"].replace("_Bool", "bool")
    return re.sub(r" +\[", "[", text)


def struct_rows(node):
    """Rows (format, expressions): what the compiler is asked to print about a structure."""
    name = f"{node['tagUsed']} {node['name']}"
    members = parts(node, "FieldDecl")
    yield (f"{name}: %zu bytes, aligned to %zu, {len(members)} members",
           [f"sizeof({name})", f"_Alignof({name})"])
    for member in members:
        if "name" not in member or member.get("isBitfield"):
            sys.exit(f"abi_text: {name} has a member without a name or an offset; this is not understood")
        yield (f"{name}: {member['name']} at %zu, {spelled(member)}",
               [f"offsetof({name}, {member['name']})"])


def rows(nodes, exported):
    for node in nodes:
        if node["kind"] == "RecordDecl" and node.get("completeDefinition"):
            yield from struct_rows(node)
        elif node["kind"] == "EnumDecl":
            for value in parts(node, "EnumConstantDecl"):
                yield (f"enum {node.get('name', '')}: {value['name']} = %lld",
                       [f"(long long){value['name']}"])
        elif node["kind"] == "FunctionDecl" and node["name"] in exported:
            yield f"function {node['name']}: {spelled(node)}", []
        elif node["kind"] == "TypedefDecl":
            yield f"type {node['name']}: {spelled(node)}", []


def computed(table, header):
    """The rows with their numbers, by a program that prints them."""
    prints = [f"    printf({', '.join([json.dumps(text + chr(10)), *values])});" for text, values in table]
    program = "\n".join([f'#include "{os.path.abspath(header)}"', "#include <stddef.h>", "#include <stdio.h>",
                         "int main(void)", "{", *prints, "}", ""])
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "abi.c")
        with open(source, "w", encoding="utf-8") as file:
            file.write(program)
        output_of("cc", "-std=c11", include_flag(header), source, "-o", os.path.join(folder, "abi"))
        return output_of(os.path.join(folder, "abi"))


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: abi_text.py LIBRARY HEADER")
    library, header = sys.argv[1:]
    soname = re.search(r"\(SONAME\).*\[(.*)\]", output_of("readelf", "-dW", library))
    if not soname:
        sys.exit(f"abi_text: {library} has no soname")
    exported = set(re.findall(r" T (\w+)", output_of("nm", "-D", "--defined-only", library)))
    lines = computed(rows(declarations(header), exported), header).splitlines()
    print("\n".join([f"soname {soname[1]}", *dict.fromkeys(lines)]))


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"abi_text: {error.cmd[0]} failed")
