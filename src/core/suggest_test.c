/*
 * Which mistyped words find their right form, and which are left alone.
 */
#include "core/suggest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct row {
    int number;
    const char *name;
};

static const struct row ROWS[] = {{1, "train"}, {2, "presets"}, {3, "nets"}, {4, "lr"}};

static const char *suggest(const char *word)
{
    return suggest_word(word, &ROWS[0].name, 4, sizeof ROWS[0]);
}

static void test_distance_counts_edits(void **state)
{
    (void)state;
    assert_int_equal(suggest_distance("train", "train"), 0);
    assert_int_equal(suggest_distance("", "abc"), 3);
    assert_int_equal(suggest_distance("abc", ""), 3);
    assert_int_equal(suggest_distance("lamda_s", "lambda_s"), 1);
    assert_int_equal(suggest_distance("hlep", "help"), 1);
    assert_int_equal(suggest_distance("kitten", "sitting"), 3);
    assert_int_equal(suggest_distance("sitting", "kitten"), 3);
}

static void test_close_words_are_found(void **state)
{
    (void)state;
    assert_string_equal(suggest("trian"), "train");
    assert_string_equal(suggest("preset"), "presets");
    assert_string_equal(suggest("nts"), "nets");
    assert_string_equal(suggest("lrr"), "lr");
}

static void test_the_closest_wins_not_the_first(void **state)
{
    (void)state;
    const char *const words[] = {"memory_mode", "memory", "memo"};
    assert_string_equal(suggest_word("memry", words, 3, sizeof words[0]), "memory");
}

static void test_distant_words_find_nothing(void **state)
{
    (void)state;
    assert_null(suggest("frobnicate"));
    static const char *const shells[] = {"bash", "zsh"};
    assert_null(suggest_word("fish", shells, 2, sizeof shells[0]));
    assert_string_equal(suggest_word("bsah", shells, 2, sizeof shells[0]), "bash");
    assert_null(suggest("tests-all"));
    assert_null(suggest("xy")); /* two edits away from "lr", but nothing of it is left */
    assert_null(suggest(""));
    assert_null(suggest_word("train", &ROWS[0].name, 0, sizeof ROWS[0]));
}

static void test_very_long_words_find_nothing(void **state)
{
    (void)state;
    char word[500];
    memset(word, 'x', sizeof word);
    word[sizeof word - 1] = '\0';
    assert_null(suggest(word));
    assert_int_equal(suggest_distance(word, word), SUGGEST_WORD_MAX + 1);
    word[SUGGEST_WORD_MAX] = '\0';
    assert_int_equal(suggest_distance(word, word), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distance_counts_edits),
        cmocka_unit_test(test_close_words_are_found),
        cmocka_unit_test(test_the_closest_wins_not_the_first),
        cmocka_unit_test(test_distant_words_find_nothing),
        cmocka_unit_test(test_very_long_words_find_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
