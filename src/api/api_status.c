/*
 * Names and texts of the status codes, both from the one list in the public header.
 */
#include <der/status.h>

const char *der_status_name(enum der_status status)
{
    switch (status) {
#define STATUS_NAME(constant, value, name, text)                                                   \
    case constant:                                                                                 \
        return name;
        DER_STATUS_LIST(STATUS_NAME)
#undef STATUS_NAME
    }
    return "unknown";
}

const char *der_status_text(enum der_status status)
{
    switch (status) {
#define STATUS_TEXT(constant, value, name, text)                                                   \
    case constant:                                                                                 \
        return text;
        DER_STATUS_LIST(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "unknown status";
}
