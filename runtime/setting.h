/* A setting: values for some of the options that sluice tune may keep (args.h). What it does not
 * name stays open. Plain data; copies are settings, too. */
#ifndef SL_SETTING_H
#define SL_SETTING_H

#include "args.h"

enum { SL_SETTING_ITEMS = 16, SL_SETTING_TEXT = 400 };

typedef struct sl_setting {
    uint32_t n;
    struct {
        const char *name; /* of the option table */
        char value[SL_VALUE];
    } item[SL_SETTING_ITEMS];
} sl_setting;

/* SL_EINVAL: no such option, or not one of its values; err says which. A second value of the same
 * name replaces the first. */
sl_status sl_setting_add(sl_setting *s, const char *name, const char *value, sl_err *err);
/* What of them o was given. */
sl_setting sl_setting_given(const sl_options *o);
/* Sets the options. only_open: those that were not given before. Returns what it set. */
sl_setting sl_setting_apply(const sl_setting *s, bool only_open, sl_options *o);
/* "--ring 96M --predict 6", "the defaults". Returns out, which has SL_SETTING_TEXT bytes. */
const char *sl_setting_show(char *out, const sl_setting *s);

#endif
