#include "core/module.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <memory>

#include "core/error.h"
#include "core/log.h"

namespace tutti {
namespace {

/// Where the library, or the program, that has an address lies, with a / at the end; empty: the
/// system does not say.
std::string folder_of(const void* address) {
  Dl_info info{};
  void* extra = nullptr;
  if (dladdr1(address, &info, &extra, RTLD_DL_LINKMAP) == 0) return "";
  // The program itself has no name here.
  const auto* const map = static_cast<const link_map*>(extra);
  const char* const name = map->l_name[0] != '\0' ? map->l_name : "/proc/self/exe";
  const std::unique_ptr<char, decltype(&std::free)> path(realpath(name, nullptr), std::free);
  if (path == nullptr) return "";
  const std::string_view text(path.get());
  return std::string(text.substr(0, text.rfind('/') + 1));
}

std::string loader_error() {
  const char* const text = dlerror();
  return text != nullptr ? text : "the loader does not say why";
}

/// Its place, and how it was opened; null: it is in none.
struct Opened {
  std::string path;
  void* library = nullptr;
};

Opened open_file(const ModuleWanted& wanted, const std::string& file) {
  constexpr int kHow = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
  const std::string folder = folder_of(wanted.beside);
  const std::array places{folder + "tutti/", folder,
                          folder + TUTTI_LIBRARIES_FROM_PROGRAMS "/tutti/"};
  for (const std::string& place : places) {
    const std::string path = place + file;
    if (folder.empty() || access(path.c_str(), F_OK) != 0) continue;
    void* const library = dlopen(path.c_str(), kHow);
    if (library != nullptr) return {path, library};
    throw Error(ErrorCode::system, fmt::format("{} needs {}, which cannot be loaded: {}",
                                               wanted.purpose, path, loader_error()));
  }
  if (void* const library = dlopen(file.c_str(), kHow); library != nullptr) return {file, library};
  throw Error(
      ErrorCode::system,
      fmt::format(
          "{} needs {}, a part of Tutti that is not in {}tutti, nor where the loader looks: "
          "install it from the build that this library is of (docs/building.md)",
          wanted.purpose, file, folder));
}

}  // namespace

const void* open_module(const ModuleWanted& wanted) {
  const Opened opened = open_file(wanted, fmt::format("libtutti_{}.so", wanted.name));
  const auto* const module = static_cast<const Module*>(dlsym(opened.library, "tutti_module"));
  if (module == nullptr) {
    throw Error(ErrorCode::system,
                fmt::format("{} needs {}, which is no module of Tutti: it has no tutti_module",
                            wanted.purpose, opened.path));
  }
  if (module->interface != wanted.interface) {
    throw Error(
        ErrorCode::system,
        fmt::format("{} needs {}, but that is of another build of Tutti ({}) than the library that "
                    "opens it ({}): install both from one build",
                    wanted.purpose, opened.path, module->interface, wanted.interface));
  }
  log().debug("{} opens {}", wanted.purpose, opened.path);
  return module->functions;
}

void log_release(std::string_view binding) {
  log().debug("{}, on Tutti {} in {}", binding, TUTTI_VERSION,
              folder_of(reinterpret_cast<const void*>(&log_release)));
}

}  // namespace tutti
