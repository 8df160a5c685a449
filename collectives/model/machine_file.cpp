#include "collectives/model/machine_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "core/error.h"

namespace tutti {

std::string constant_text(double value) {
  return value >= 1e5 ? fmt::format("{:.0f}", value) : fmt::format("{:.5g}", value);
}

std::string machine_to_text(const MachineRecord& record) {
  std::string text = fmt::format(
      "# What things cost on a machine, measured by `tutti calibrate`. The names are explained\n"
      "# by `tutti explain --constants`.\n"
      "version = {}\nmachine = {}\ndate = {}\n",
      kMachineVersion, record.name, record.date);
  for (const MachineConstant& c : machine_constants()) {
    text += fmt::format("{} = {}  # {}: {}\n", c.name, record.machine.*c.value, c.unit, c.meaning);
  }
  return text;
}

void write_machine(const std::string& path, const MachineRecord& record) {
  const std::filesystem::path target(path);
  std::error_code ignored;  // the open below says what is wrong
  if (target.has_parent_path()) {
    std::filesystem::create_directories(target.parent_path(), ignored);
  }
  // Whole or not at all: ranks may start while this is written.
  const std::string unfinished = fmt::format("{}.{}", path, getpid());
  std::ofstream file(unfinished, std::ios::binary);
  file << machine_to_text(record) << std::flush;
  if (!file) {
    const int why = errno;
    std::filesystem::remove(unfinished, ignored);
    throw_system_error(fmt::format("cannot write {}", unfinished), why);
  }
  file.close();
  std::error_code error;
  std::filesystem::rename(unfinished, target, error);
  if (error) throw_system_error(fmt::format("cannot write {}", path), error.value());
}

}  // namespace tutti
