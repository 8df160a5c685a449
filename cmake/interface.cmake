# Writes OUT, a header whose constant is the VERSION and a hash of HEADERS (cmake/modules.cmake).
set(all "")
foreach(header IN LISTS HEADERS)
  file(SHA256 ${header} hash)
  string(APPEND all ${hash})
endforeach()
string(SHA256 hash "${all}")
string(SUBSTRING ${hash} 0 12 hash)
string(TOUPPER ${NAME} upper)
file(CONFIGURE OUTPUT ${OUT} CONTENT [[
// What a module and whoever opens it agree on (core/module.h); written by cmake/interface.cmake.
#pragma once
#define TUTTI_@upper@_INTERFACE "@VERSION@-@hash@"
]] @ONLY)
