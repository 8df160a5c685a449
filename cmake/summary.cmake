# What this configuration builds, in a few lines at the end of configure.
if(BUILD_SHARED_LIBS)
  set(kind shared)
else()
  set(kind static)
endif()
set(sanitizers ${TUTTI_SANITIZE})
if(NOT sanitizers)
  set(sanitizers none)
endif()

message(STATUS "")
message(STATUS "Tutti ${PROJECT_VERSION}: ${CMAKE_BUILD_TYPE}, ${kind} library, "
               "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
message(STATUS "  sanitizers   ${sanitizers}")
message(STATUS "  tests        ${TUTTI_BUILD_TESTS}")
message(STATUS "  runs on      CPUs of one host (shared memory). CUDA, verbs, UCX and TCP are not in this version")
message(STATUS "  installs to  ${CMAKE_INSTALL_PREFIX}")
message(STATUS "")
