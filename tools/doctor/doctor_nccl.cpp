// See doctor_nccl.h.
#include "tools/doctor/doctor_nccl.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>

#include "bindings/nccl/functions.h"
#include "tools/doctor/doctor_symbols.h"

namespace tutti {
namespace {

/// Whether NCCL names functions so: ncclX or pncclX.
bool is_nccl_name(std::string_view text) {
  if (text.starts_with('p')) text.remove_prefix(1);
  if (!text.starts_with("nccl") || text.size() < 6) return false;
  return std::isupper(static_cast<unsigned char>(text[4])) != 0 &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isalnum(c) != 0; });
}

std::vector<std::string> those_of(const Names& names, bool known) {
  std::vector<std::string> chosen;
  for (const std::string& name : names) {
    if ((nccl::find_function(name) != nullptr) == known) chosen.push_back(name);
  }
  return chosen;
}

/// Those with one reason in one line.
void show_refusals(DoctorReport& report, const Names& names) {
  std::map<std::string_view, std::vector<std::string>> by_reason;
  for (const std::string& name : those_of(names, true)) {
    const std::string_view reason = nccl::find_function(name)->refusal;
    if (!reason.empty()) by_reason[reason].push_back(name);
  }
  for (const auto& [reason, refused] : by_reason) {
    report.good("refuses", fmt::format("{}: {}", fmt::join(refused, " "), reason));
  }
}

void report_client(DoctorReport& report, const std::string& path) {
  report.section(path);
  const Symbols client = symbols_of(path, is_nccl_name);
  if (!client.trouble.empty()) return report.bad("the file", client.trouble);
  if (client.brings > 0) {
    return report.good("has itself", fmt::format("{} functions of NCCL", client.brings));
  }
  report.good("needs",
              fmt::format("{} functions of NCCL", client.needs.size() + client.weak.size()));
  for (const std::string& name : those_of(client.needs, false)) {
    report.bad("lacks", name,
               "Tutti's libnccl.so.2 has no such function: the file cannot be loaded");
  }
  for (const std::string& name : those_of(client.weak, false)) {
    report.good("may lack", name + ", a weak symbol");
  }
  show_refusals(report, client.needs);
  show_refusals(report, client.weak);
  if (const auto known = those_of(client.names, true); !known.empty()) {
    report.good("may ask for", fmt::format("{}", fmt::join(known, " ")));
    show_refusals(report, client.names);
  }
  if (const auto unknown = those_of(client.names, false); !unknown.empty()) {
    report.good("not among NCCL's", fmt::format("{}", fmt::join(unknown, " ")));
  }
}

}  // namespace

void report_nccl_clients(DoctorReport& report, const std::vector<std::string>& files) {
  for (const std::string& file : files) report_client(report, file);
}

}  // namespace tutti
