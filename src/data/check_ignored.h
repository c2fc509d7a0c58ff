/*
 * Files and folders of an image folder that nothing reads. Private to the room.
 */
#ifndef DATA_CHECK_IGNORED_H
#define DATA_CHECK_IGNORED_H

#include "data/check.h"

/* Writes a finding down. Takes over a sentence of the check's arena; NULL: memory was short when it was made. */
NODISCARD enum der_status check_find(struct data_check *check, enum check_kind kind,
                                     const char *text);

/* Looks around the images of a set that is open. Sets that are no image folders have nothing to find. */
NODISCARD enum der_status check_ignored(struct data_check *check);

#endif
