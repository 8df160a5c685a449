// The launchers that Tutti knows, by the variables that they set, and which of them has started
// this process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bootstrap/environment.h"

namespace tutti {

/// What a launcher's ranks leave the id in where they are on several hosts.
enum class Store : std::uint8_t { none, pmi, pmix, torch };

struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
  Store store = Store::none;
  const char* sign = nullptr;        // unless this is set, it was not this launcher
  const char* local_size = nullptr;  // the number of ranks on this host
  const char* hosts = nullptr;       // where there is no local_size: the number of hosts
};

extern const Launcher kTuttiRun;
/// Programs that set torchrun's variables themselves.
extern const Launcher kPlainTorchrun;

/// The one that has started this process; null: none that is known.
const Launcher* find_launcher();
/// The placement that its variables say; nothing where it has not started this process. Throws
/// Error(invalid_usage) where its variables contradict each other.
std::optional<Placement> placement_from(const Launcher& launcher);

/// The value of a variable; an empty one counts as absent.
std::optional<std::string> variable(const char* name);
/// The value of a variable that has to be one: throws Error(invalid_usage).
std::optional<int> integer_variable(const char* name);

}  // namespace tutti
