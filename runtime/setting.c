#include "setting.h"

#include <stdio.h>
#include <string.h>

static const char *table_name(const char *name)
{
    const char *at = NULL;
    for (uint32_t i = 0; (at = sl_args_kept(i)) && strcmp(at, name) != 0;)
        i++;
    return at;
}

sl_status sl_setting_add(sl_setting *s, const char *name, const char *value, sl_err *err)
{
    sl_options scratch = sl_options_default();
    const sl_status st = sl_args_set(&scratch, name, value, err);
    uint32_t i = 0;
    if (st)
        return st;
    while (i < s->n && strcmp(s->item[i].name, name) != 0)
        i++;
    if (i == SL_SETTING_ITEMS)
        return sl_fail(err, SL_EINVAL, "more than %d options", SL_SETTING_ITEMS);
    s->item[i].name = table_name(name);
    sl_args_get(&scratch, name, s->item[i].value);
    s->n += i == s->n;
    return SL_OK;
}

sl_setting sl_setting_given(const sl_options *o)
{
    sl_setting s = {0};
    const char *name;
    for (uint32_t i = 0; (name = sl_args_kept(i)); i++)
        if (sl_args_given(o, name) && s.n < SL_SETTING_ITEMS) {
            s.item[s.n].name = name;
            sl_args_get(o, name, s.item[s.n++].value);
        }
    return s;
}

sl_setting sl_setting_apply(const sl_setting *s, bool only_open, sl_options *o)
{
    sl_setting done = {0};
    for (uint32_t i = 0; i < s->n; i++)
        if (!(only_open && sl_args_given(o, s->item[i].name)) &&
            sl_args_set(o, s->item[i].name, s->item[i].value, NULL) == SL_OK)
            done.item[done.n++] = s->item[i];
    return done;
}

const char *sl_setting_show(char *out, const sl_setting *s)
{
    size_t n = (size_t)snprintf(out, SL_SETTING_TEXT, "%s", s->n ? "" : "the defaults");
    for (uint32_t i = 0; i < s->n && n < SL_SETTING_TEXT; i++)
        n += (size_t)snprintf(out + n, SL_SETTING_TEXT - n, "%s--%s %s", i ? " " : "",
                              s->item[i].name, s->item[i].value);
    return out;
}
