#include "lib_safetensors.h"

#include <cjson/cJSON.h>
#include <stdint.h>
#include <string.h>

const void *test_tensor(const char *file_text, size_t len, const char *name, size_t *bytes)
{
    uint64_t header;
    if (len < sizeof header)
        return NULL;
    memcpy(&header, file_text, sizeof header);
    if (header > len - sizeof header)
        return NULL;
    const char *data = file_text + sizeof header + header;
    const size_t data_len = len - sizeof header - header;
    cJSON *json = cJSON_ParseWithLength(file_text + sizeof header, header);
    const cJSON *tensor = cJSON_GetObjectItemCaseSensitive(json, name);
    const cJSON *extent = cJSON_GetObjectItemCaseSensitive(tensor, "data_offsets");
    const double begin = cJSON_GetNumberValue(cJSON_GetArrayItem(extent, 0));
    const double end = cJSON_GetNumberValue(cJSON_GetArrayItem(extent, 1));
    cJSON_Delete(json);
    if (!(begin >= 0 && begin <= end && end <= (double)data_len))
        return NULL;
    *bytes = (size_t)end - (size_t)begin;
    return data + (size_t)begin;
}
