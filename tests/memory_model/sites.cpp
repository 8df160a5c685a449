// See sites.h.
#include "tests/memory_model/sites.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <tuple>

extern "C" const char __executable_start;  // the linker's

namespace tutti::model {
namespace {

using Call = std::tuple<std::uintptr_t, Kind, std::memory_order>;
std::set<Call> noted;
bool notes = false;
const Mutant* mutant = nullptr;

constexpr std::array kOrders{"relaxed", "consume", "acquire", "release", "acq_rel", "seq_cst"};
constexpr std::array kKinds{"load", "store", "exchange", "fence", "light fence"};
const char* name(std::memory_order order) { return kOrders[static_cast<std::size_t>(order)]; }

/// The innermost line of the project's own source, for each call.
std::map<std::uintptr_t, std::string> places_of(const std::set<Call>& calls) {
  const std::string program = std::string("/proc/") + std::to_string(getpid()) + "/exe";
  std::string command = "addr2line -a -i -e " + program;
  const auto start = reinterpret_cast<std::uintptr_t>(&__executable_start);
  std::set<std::uintptr_t> all;
  for (const auto& [call, kind, order] : calls) all.insert(call);
  // A call's own line is that of the byte before the place to which it returns.
  for (const std::uintptr_t call : all) command += fmt::format(" {:#x}", call - start - 1);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  if (pipe == nullptr) throw std::runtime_error("addr2line cannot be started");
  std::map<std::uintptr_t, std::string> places;
  std::array<char, 4096> line;
  std::uintptr_t at = 0;
  while (fgets(line.data(), line.size(), pipe.get()) != nullptr) {
    std::string_view text(line.data());
    if (text.starts_with("0x")) {
      at = std::stoull(std::string(text), nullptr, 16) + start + 1;
      continue;
    }
    text = text.substr(0, text.find_first_of(" \n"));
    constexpr std::string_view kRoot = TUTTI_SOURCE_DIR "/";
    if (text.starts_with(kRoot)) places.emplace(at, text.substr(kRoot.size()));
  }
  if (places.empty()) throw std::runtime_error("addr2line finds no line of this program");
  return places;
}

}  // namespace

std::string Mutant::text() const {
  const std::string what =
      fmt::format("{}: {}", site.place, kKinds[static_cast<std::size_t>(site.kind)]);
  if (site.kind == Kind::light_fence) return what + " left out";
  if (site.kind == Kind::fence && order == std::memory_order_relaxed) {
    return fmt::format("{} {} left out", what, name(site.order));
  }
  return fmt::format("{} {} -> {}", what, name(site.order), name(order));
}

std::memory_order order_of(std::uintptr_t call, Kind kind, std::memory_order order) {
  if (notes) noted.emplace(call, kind, order);
  if (mutant != nullptr && mutant->site.kind == kind && mutant->site.order == order &&
      mutant->site.calls.contains(call)) {
    return mutant->order;
  }
  return order;
}

void note_sites() {
  noted.clear();
  notes = true;
}

std::set<std::uintptr_t> noted_calls() {
  std::set<std::uintptr_t> calls;
  for (const auto& [call, kind, order] : noted) calls.insert(call);
  return calls;
}

std::vector<Site> noted_sites() {
  notes = false;
  const auto places = places_of(noted);
  std::map<std::tuple<std::string, Kind, std::memory_order>, Site> sites;
  for (const auto& [call, kind, order] : noted) {
    const auto place = places.find(call);
    if (place == places.end() || place->second.starts_with("tests/")) continue;
    Site& site = sites[{place->second, kind, order}];
    site.place = place->second;
    site.kind = kind;
    site.order = order;
    site.calls.insert(call);
  }
  std::vector<Site> all;
  for (const auto& [key, site] : sites) all.push_back(site);
  return all;
}

std::vector<Mutant> mutants_of(const std::vector<Site>& sites) {
  std::vector<Mutant> all;
  for (const Site& site : sites) {
    if (site.order == std::memory_order_relaxed) continue;
    all.push_back({site, std::memory_order_relaxed});
    if (site.kind == Kind::light_fence) continue;
    const bool is_both = site.kind == Kind::modify || site.kind == Kind::fence;
    if (site.order == std::memory_order_seq_cst) {
      all.push_back({site, is_both                   ? std::memory_order_acq_rel
                           : site.kind == Kind::load ? std::memory_order_acquire
                                                     : std::memory_order_release});
    } else if (site.order == std::memory_order_acq_rel) {
      all.push_back({site, std::memory_order_acquire});
      all.push_back({site, std::memory_order_release});
    }
  }
  return all;
}

Mutated::Mutated(const Mutant& m) { mutant = &m; }
Mutated::~Mutated() { mutant = nullptr; }

}  // namespace tutti::model
