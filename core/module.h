// Modules: parts of Tutti that need something which not every machine has, as CUDA's toolkit. Each
// is a shared object of its own, libtutti_NAME.so, that the library opens when it first needs it.
// Nothing is linked with a module, and a module takes nothing from the library that opens it: that
// may be libnccl.so.2, which hides what it contains. cmake/modules.cmake makes them.
#pragma once

#include <string_view>

namespace tutti {

/// What a module exports, as `tutti_module`.
struct Module {
  /// A hash of the headers that the module was compiled with and shares with whoever opens it. If
  /// it differs, so may their structures.
  const char* interface;
  const void* functions;
};
extern "C" const Module tutti_module;  // in each module

/// What a caller knows of the module that it opens.
struct ModuleWanted {
  std::string_view name;       // "cuda": libtutti_cuda.so
  std::string_view interface;  // Module::interface has to be this
  const void* beside;          // any address in the library or program that the module belongs to
  std::string_view purpose;    // "GPU memory", for the sentence where there is no such module
};

/// Module::functions, of the module as it lies in the folder tutti/ beside the library, beside the
/// library itself, in the folder of libraries beside a program's, or where the loader looks. It
/// stays open. Throws Error(system) where there is none, or one of another build; the next call
/// looks again. From any thread.
const void* open_module(const ModuleWanted& wanted);

/// Logs, at level debug, who works with which release of this library, and where that lies.
/// Bindings say it once: "MPI's interface".
void log_release(std::string_view binding);

}  // namespace tutti
