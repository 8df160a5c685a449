#include "bindings/nccl/environment.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "bindings/nccl/encryption.h"
#include "bindings/nccl/export.h"
#include "bindings/nccl/log.h"
#include "bindings/nccl/result.h"
#include "bootstrap/id_handover.h"
#include "bootstrap/meeting_place.h"
#include "bootstrap/rendezvous_protocol.h"
#include "collectives/algorithms.h"
#include "core/number.h"
#include "core/settings.h"
#include "execute/cuda/protocol.h"

namespace tutti::nccl {
namespace {

constexpr std::chrono::minutes kTimeToMeet{30};
// An id that stands for the name in NCCL_COMM_ID: these bytes, then the name.
constexpr std::string_view kNamedId{"tutti NCCL_COMM_ID:"};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// --- ncclConfig_t -------------------------------------------------------------------------------

/// The int at `offset`, if the caller's struct has it: it is long enough, and not so old that these
/// bytes were padding.
int field(const ncclConfig_t& config, std::size_t offset, unsigned since) {
  if (config.size < offset + sizeof(int) || config.version < since) return NCCL_CONFIG_UNDEF_INT;
  int value = 0;
  std::memcpy(&value, reinterpret_cast<const char*>(&config) + offset, sizeof value);
  return value;
}

struct IntegerField {
  const char* name;
  std::size_t offset;
  unsigned since;
  int least, most;
};

constexpr std::array kIntegers{
    IntegerField{"blocking", offsetof(ncclConfig_t, blocking), 21400, 0, 1},
    IntegerField{"cgaClusterSize", offsetof(ncclConfig_t, cgaClusterSize), 21700, 0, 8},
    IntegerField{"minCTAs", offsetof(ncclConfig_t, minCTAs), 21700, 1, INT_MAX},
    IntegerField{"maxCTAs", offsetof(ncclConfig_t, maxCTAs), 21700, 1, INT_MAX},
    IntegerField{"splitShare", offsetof(ncclConfig_t, splitShare), 21800, 0, 1},
    IntegerField{"collnetEnable", offsetof(ncclConfig_t, collnetEnable), 22700, 0, 1},
    IntegerField{"CTAPolicy", offsetof(ncclConfig_t, CTAPolicy), 22700, NCCL_CTA_POLICY_DEFAULT,
                 NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO},
    IntegerField{"shrinkShare", offsetof(ncclConfig_t, shrinkShare), 22700, 0, 1},
    IntegerField{"numRmaCtx", offsetof(ncclConfig_t, numRmaCtx), 22900, 0, INT_MAX},
    IntegerField{"numRmaSig", offsetof(ncclConfig_t, numRmaSig), 23100, 0, INT_MAX},
};

// --- NCCL_ALGO, NCCL_PROTO, NCCL_SOCKET_IFNAME --------------------------------------------------

/// The first of "Ring,Tree" that Tutti has; "" for forms that it does not (a choice per operation,
/// or what not to use).
std::string algorithm_from(const std::string& value) {
  if (value.empty()) return "";
  if (value.find_first_of(":;^") == std::string::npos) {
    std::string rest = lower(value);
    while (!rest.empty()) {
      const std::size_t comma = rest.find(',');
      const std::string name = rest.substr(0, comma);
      const auto known = algorithms();
      if (std::any_of(known.begin(), known.end(),
                      [&](const Algorithm& a) { return a.name == name; })) {
        return name;
      }
      rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    }
  }
  write_log(LogLevel::info,
            fmt::format("NCCL_ALGO={} names no algorithm of Tutti's, which chooses", value));
  return "";
}

/// "" for forms that Tutti does not have (a choice per operation) and for unknown names.
std::string protocols_from_environment() {
  const std::string value = variable("NCCL_PROTO");
  try {
    device::protocols_from(value);
    return value;
  } catch (const Error&) {
    write_log(
        LogLevel::info,
        fmt::format("NCCL_PROTO={} is no list of LL, LL128 and Simple; Tutti chooses", value));
    return "";
  }
}

/// Those that NCCL_SOCKET_IFNAME names, in the form of TUTTI_SOCKET_IFNAME, which has a '=' in
/// front of each whole name; TUTTI_SOCKET_IFNAME goes before it.
std::string interfaces_from_environment() {
  if (const std::string own = setting_text("TUTTI_SOCKET_IFNAME"); !own.empty()) return own;
  const std::string value = variable("NCCL_SOCKET_IFNAME");
  const std::size_t first = value.starts_with('^') ? 1 : 0;
  const bool whole_names = value.size() > first && value[first] == '=';
  std::string result;
  for (const char c : value) {
    result += c;
    if (c == ',' && whole_names) result += '=';
  }
  return result;
}

/// `place`, for as long as NCCL waits.
MeetingPlace patient(MeetingPlace place) {
  if (variable("TUTTI_RENDEZVOUS_TIMEOUT").empty()) place.timeout = kTimeToMeet;
  return place;
}

}  // namespace

Config parse_config(const ncclConfig_t* given, const Config& inherited) {
  Config config = inherited;
  if (given != nullptr) {
    if (given->magic != NCCL_API_MAGIC || given->size < offsetof(ncclConfig_t, cgaClusterSize)) {
      refuse_argument("the ncclConfig_t was not initialised with NCCL_CONFIG_INITIALIZER");
    }
    for (const IntegerField& f : kIntegers) {
      const int value = field(*given, f.offset, f.since);
      if (value != NCCL_CONFIG_UNDEF_INT && (value < f.least || value > f.most)) {
        refuse_argument(
            fmt::format("{} of the ncclConfig_t is {}, but must be {} to {}, or be left undefined",
                        f.name, value, f.least, f.most));
      }
    }
    const int least = field(*given, offsetof(ncclConfig_t, minCTAs), 21700);
    const int most = field(*given, offsetof(ncclConfig_t, maxCTAs), 21700);
    if (least != NCCL_CONFIG_UNDEF_INT && most != NCCL_CONFIG_UNDEF_INT && least > most) {
      refuse_argument(
          fmt::format("minCTAs of the ncclConfig_t is {}, more than maxCTAs, {}", least, most));
    }
    if (most != NCCL_CONFIG_UNDEF_INT) config.most_blocks = static_cast<std::size_t>(most);
    const int contexts = field(*given, offsetof(ncclConfig_t, numRmaCtx), 22900);
    if (contexts != NCCL_CONFIG_UNDEF_INT) config.rma_contexts = contexts;
    const int signals = field(*given, offsetof(ncclConfig_t, numRmaSig), 23100);
    if (signals != NCCL_CONFIG_UNDEF_INT) config.rma_signals = signals;
    const int blocking = field(*given, offsetof(ncclConfig_t, blocking), 21400);
    if (blocking != NCCL_CONFIG_UNDEF_INT) config.blocking = blocking != 0;
    if (given->version >= 22700 &&
        given->size >= offsetof(ncclConfig_t, commName) + sizeof given->commName &&
        given->commName != nullptr) {
      config.name = given->commName;
    }
  }
  const std::string blocking = variable("NCCL_COMM_BLOCKING");
  if (blocking == "0" || blocking == "1") config.blocking = blocking == "1";
  const std::string blocks = variable("NCCL_MAX_CTAS");
  const auto number = parse_number<std::size_t>(blocks);
  if (number && *number > 0) {
    config.most_blocks = *number;
  } else if (!blocks.empty()) {
    write_log(LogLevel::info, fmt::format("NCCL_MAX_CTAS={} is no number of blocks", blocks));
  }
  return config;
}

Options options_for(const Config& config) {
  Options options;
  options.interfaces = interfaces_from_environment();
  options.encrypt = options.encrypt || encrypts();
  if (options.cuda_protocols.empty()) options.cuda_protocols = protocols_from_environment();
  if (options.cuda_blocks == 0) options.cuda_blocks = config.most_blocks;
  if (options.algorithm.empty()) options.algorithm = algorithm_from(variable("NCCL_ALGO"));
  if (variable("TUTTI_RENDEZVOUS_TIMEOUT").empty()) options.rendezvous_timeout = kTimeToMeet;
  return options;
}

MeetingPlace meeting_place_from_environment() {
  try {
    return patient(place_among_hosts({}, interfaces_from_environment()));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::invalid_argument) refuse_usage(error.what());
    throw;
  }
}

ncclUniqueId fresh_unique_id() {
  ncclUniqueId result{};
  static_assert(sizeof result == sizeof UniqueId::bytes);
  const UniqueId id = with_key(make_unique_id(meeting_place_from_environment()));
  std::memcpy(result.internal, id.bytes.data(), sizeof result);
  return result;
}

namespace {

/// "; this process has loaded <file>, too", of other libraries of NCCL's name.
std::string others_loaded() {
  struct Found {
    const char* own = nullptr;
    std::string text;
  } found;
  Dl_info self{};
  if (::dladdr(reinterpret_cast<const void*>(&others_loaded), &self) != 0)
    found.own = self.dli_fname;
  const auto look = [](dl_phdr_info* library, std::size_t, void* to) {
    Found& all = *static_cast<Found*>(to);
    const std::string_view file = library->dlpi_name;
    const bool is_nccl = file.substr(file.rfind('/') + 1).starts_with("libnccl.so");
    if (is_nccl && (all.own == nullptr || file != all.own)) {
      all.text += fmt::format("; this process has loaded {}, too", file);
    }
    return 0;
  };
  ::dl_iterate_phdr(look, &found);
  return found.text;
}

}  // namespace

ncclUniqueId new_unique_id() {
  ncclUniqueId result{};
  const std::string name = variable("NCCL_COMM_ID");
  if (name.empty()) return fresh_unique_id();
  if (kNamedId.size() + name.size() >= sizeof result) {
    refuse_argument(
        fmt::format("NCCL_COMM_ID has {} characters; the longest that fits an id has {}",
                    name.size(), sizeof result - kNamedId.size() - 1));
  }
  kNamedId.copy(result.internal, kNamedId.size());
  name.copy(result.internal + kNamedId.size(), name.size());
  return result;
}

UniqueId resolve_unique_id(const ncclUniqueId& id, int rank, int size, const Options& options) {
  UniqueId result;
  if (std::memcmp(id.internal, kNamedId.data(), kNamedId.size()) != 0) {
    std::memcpy(result.bytes.data(), id.internal, sizeof id);
    if (!protocol::is_id(result)) {
      refuse_argument(fmt::format(
          "this ncclUniqueId is none of Tutti's: ncclGetUniqueId was another library's, as it is "
          "where rank 0's process has loaded another libnccl.so.2; all ranks of a communicator "
          "need Tutti's (docs/nccl.md: LD_PRELOAD, or the rpath){}",
          others_loaded()));
    }
    return with_key(result);
  }
  const char* name = id.internal + kNamedId.size();
  const std::string job =
      "NCCL_COMM_ID=" + std::string(name, ::strnlen(name, sizeof id - kNamedId.size()));
  if (rank != 0) return fetch_unique_id(job, rank, size, options.rendezvous_timeout);
  result = make_unique_id(patient(MeetingPlace()));  // the ranks of a name are on one host
  offer_unique_id(job, size, result, options.rendezvous_timeout);
  return result;
}

}  // namespace tutti::nccl

NCCL_API(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * uniqueId)) {
  using namespace tutti::nccl;
  return guarded("ncclGetUniqueId", [&] {
    require(uniqueId, "uniqueId");
    log_start();
    *uniqueId = new_unique_id();
    return ncclSuccess;
  });
}
