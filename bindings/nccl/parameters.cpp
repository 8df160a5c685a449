// ncclParam*: what NCCL's variables are set to, as far as they mean something here. A value is the
// text in the environment; the integers are read from it.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bindings/nccl/export.h"
#include "bindings/nccl/log.h"
#include "bindings/nccl/result.h"
#include "core/number.h"

namespace tutti::nccl {
namespace {

std::string value_of(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

/// A handle is the place of the name in known_variables().
const char* const* find(std::string_view key) {
  for (const char* const& name : known_variables()) {
    if (key == name) return &name;
  }
  refuse_argument(fmt::format("{} is no parameter that means something to Tutti", key));
}

const char* name_of(ncclParamHandle_t handle) {
  require(handle, "h");
  for (const char* const& name : known_variables()) {
    if (reinterpret_cast<const char* const*>(handle) == &name) return name;
  }
  refuse_argument("the handle does not come from ncclParamBind");
}

template <class Integer>
ncclResult_t get_integer(std::string_view function, ncclParamHandle_t handle, Integer* out) {
  return guarded(function, [&] {
    const char* const name = name_of(handle);
    require(out, "out");
    const std::string text = value_of(name);
    const auto value = parse_number<Integer>(text);
    if (!value) {
      refuse_argument(
          fmt::format("{}=\"{}\" is no integer of {} bits", name, text, 8 * sizeof(Integer)));
    }
    *out = *value;
    return ncclSuccess;
  });
}

}  // namespace
}  // namespace tutti::nccl

using namespace tutti::nccl;

NCCL_API(ncclResult_t, ncclParamBind, (ncclParamHandle_t * out, const char* key)) {
  return guarded("ncclParamBind", [&] {
    require(out, "out");
    require(key, "key");
    *out = reinterpret_cast<ncclParamHandle_t>(const_cast<const char**>(find(key)));
    return ncclSuccess;
  });
}

NCCL_API(ncclResult_t, ncclParamGetI8, (ncclParamHandle_t h, int8_t* out)) {
  return get_integer("ncclParamGetI8", h, out);
}
NCCL_API(ncclResult_t, ncclParamGetI16, (ncclParamHandle_t h, int16_t* out)) {
  return get_integer("ncclParamGetI16", h, out);
}
NCCL_API(ncclResult_t, ncclParamGetI32, (ncclParamHandle_t h, int32_t* out)) {
  return get_integer("ncclParamGetI32", h, out);
}
NCCL_API(ncclResult_t, ncclParamGetI64, (ncclParamHandle_t h, int64_t* out)) {
  return get_integer("ncclParamGetI64", h, out);
}
NCCL_API(ncclResult_t, ncclParamGetU8, (ncclParamHandle_t h, uint8_t* out)) {
  return get_integer("ncclParamGetU8", h, out);
}
NCCL_API(ncclResult_t, ncclParamGetU16, (ncclParamHandle_t h, uint16_t* out)) {
  return get_integer("ncclParamGetU16", h, out);
}
NCCL_API(ncclResult_t, ncclParamGetU32, (ncclParamHandle_t h, uint32_t* out)) {
  return get_integer("ncclParamGetU32", h, out);
}
NCCL_API(ncclResult_t, ncclParamGetU64, (ncclParamHandle_t h, uint64_t* out)) {
  return get_integer("ncclParamGetU64", h, out);
}

NCCL_API(ncclResult_t, ncclParamGetStr, (ncclParamHandle_t h, const char** out)) {
  return guarded("ncclParamGetStr", [&] {
    thread_local std::string text;
    const char* const name = name_of(h);
    require(out, "out");
    text = value_of(name);
    *out = text.c_str();
    return ncclSuccess;
  });
}

NCCL_API(ncclResult_t, ncclParamGet, (ncclParamHandle_t h, void* out, int maxLen, int* len)) {
  return guarded("ncclParamGet", [&] {
    const std::string text = value_of(name_of(h));
    require(out, "out");
    const int needed = static_cast<int>(text.size());
    if (len != nullptr) *len = needed;
    if (needed > maxLen) {
      refuse_argument(fmt::format("maxLen is {}, but the value has {} bytes", maxLen, needed));
    }
    std::memcpy(out, text.data(), text.size());
    return ncclSuccess;
  });
}

NCCL_API(ncclResult_t, ncclParamGetParameter,
         (const char* key, const char** value, int* valueLen)) {
  return guarded("ncclParamGetParameter", [&] {
    thread_local std::string text;
    require(key, "key");
    require(value, "value");
    require(valueLen, "valueLen");
    *value = nullptr;
    *valueLen = 0;
    text = value_of(*find(key));
    *value = text.c_str();
    *valueLen = static_cast<int>(text.size());
    return ncclSuccess;
  });
}

NCCL_API(ncclResult_t, ncclParamGetAllParameterKeys, (const char*** table, int* tableLen)) {
  return guarded("ncclParamGetAllParameterKeys", [&] {
    thread_local std::vector<const char*> keys;
    require(table, "table");
    require(tableLen, "tableLen");
    keys.assign(known_variables().begin(), known_variables().end());
    *table = keys.data();
    *tableLen = static_cast<int>(keys.size());
    return ncclSuccess;
  });
}

// On standard output, as NCCL.
NCCL_API(void, ncclParamDumpAll, (void)) {
  for (const char* const name : known_variables()) {
    std::printf("%s=%s\n", name, value_of(name).c_str());
  }
  std::fflush(stdout);
}
