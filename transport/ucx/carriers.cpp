#include "transport/ucx/carriers.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>

namespace tutti {

// UCX's transports under an endpoint ("tcp"; "sysv, cma"). UCX tells them only in a text for
// people:
//     lane[0]:  2:sysv/memory.0 md[2] -> ...
std::string ucx_carriers(const UcxLibrary& ucx, ucp_ep_h ep) {
  char* text = nullptr;
  std::size_t bytes = 0;
  FILE* const stream = open_memstream(&text, &bytes);
  if (stream == nullptr) return {};
  ucx.ep_print_info(ep, stream);
  std::fclose(stream);
  const std::unique_ptr<char, decltype(&std::free)> owned(text, &std::free);
  std::string all;
  std::istringstream lines(std::string(text, bytes));
  for (std::string line; std::getline(lines, line);) {
    // "lane[0]: 2:sysv/memory.0": behind the second colon, up to the slash.
    const auto lane = line.find("lane["), first = line.find(':', lane);
    const auto second = line.find(':', first + 1), slash = line.find('/', second);
    if (lane == std::string::npos || first == std::string::npos || second == std::string::npos ||
        slash == std::string::npos) {
      continue;
    }
    const std::string name = line.substr(second + 1, slash - second - 1);
    if (fmt::format(", {},", all).find(fmt::format(" {},", name)) != std::string::npos) continue;
    all += all.empty() ? name : ", " + name;
  }
  return all;
}

}  // namespace tutti
