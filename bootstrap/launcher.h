// The launchers that Tutti knows, by the variables that they set, and which of them has started
// this process. Where one launcher started another one, a process has the variables of both. The
// innermost counts: the inner launcher itself has the outer one's variables, but not its own ones,
// and the kernel says what the processes above this one began with.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/environment.h"
#include "bootstrap/process.h"

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
  // By which its launches differ, and their ranks, beside rank and size.
  std::array<const char*, 3> launch{};
};

extern const Launcher kTuttiRun;
/// Programs that set torchrun's variables themselves.
extern const Launcher kPlainTorchrun;

/// The launchers whose variables this process has; without kPlainTorchrun.
std::vector<const Launcher*> launchers_here();
/// The one that has started this process; null: none that is known. Throws Error(invalid_usage)
/// where two say different things and nothing shows which of them is the inner one.
const Launcher* find_launcher();
/// What it has told this process, or one with `environment`, about its place and its launch.
Entries told_by(const Launcher& launcher);
Entries told_by(const Launcher& launcher, const Entries& environment);
/// The nearest process above this one that `launcher` has not started: of its own, as a rule. 0:
/// the kernel does not say.
pid_t process_of(const Launcher& launcher);
/// The placement that its variables say; nothing where it has not started this process. Throws
/// Error(invalid_usage) where its variables contradict each other.
std::optional<Placement> placement_from(const Launcher& launcher);

/// PMI and PMIx speak with one process of a rank: takes that seat for this process, until it ends
/// (launcher_seat.cpp). Waits a moment for one that is about to end. Throws Error(invalid_usage),
/// which names the process that has it.
void take_seat(const Launcher& launcher);

/// The value of a variable; an empty one counts as absent.
std::optional<std::string> variable(const char* name);
/// The value of a variable that has to be one: throws Error(invalid_usage).
std::optional<int> integer_variable(const char* name);

}  // namespace tutti
