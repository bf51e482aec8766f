#include "checkpoint_build.h"

sl_status sl_safetensors_open_file(sl_checkpoint *c, const char *path, sl_err *err)
{
    return sl_fail(err, SL_EUNSUPPORTED, "%s: safetensors files are not read yet", path);
}

sl_status sl_safetensors_open_index(sl_checkpoint *c, const char *path, sl_err *err)
{
    return sl_fail(err, SL_EUNSUPPORTED, "%s: safetensors files are not read yet", path);
}
