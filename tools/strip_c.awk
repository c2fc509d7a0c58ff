# Prints C files as "file:line:code" with comments removed and, unless strings=1, the content of
# string literals removed as well, so that the checks look at code and not at prose.
FNR == 1 { in_comment = 0 }
{
    out = ""
    in_string = 0
    n = length($0)
    is_include = $0 ~ /^[ \t]*#[ \t]*include/
    for (i = 1; i <= n; i++) {
        c = substr($0, i, 1)
        two = substr($0, i, 2)
        if (in_comment) {
            if (two == "*/") {
                in_comment = 0
                out = out " "
                i++
            }
        } else if (in_string) {
            if (c == "\\") {
                if (strings)
                    out = out two
                i++
            } else if (c == quote) {
                in_string = 0
                out = out c
            } else if (strings) {
                out = out c
            }
        } else if (two == "/*") {
            in_comment = 1
            i++
        } else if (two == "//") {
            break
        } else {
            if (!is_include && (c == "\"" || c == "'")) {
                in_string = 1
                quote = c
            }
            out = out c
        }
    }
    print FILENAME ":" FNR ":" out
}
