# The Debian packages that the build needs stand in cmake/packages.txt, which `make` installs, and again in
# packaging/debian/control: they are the same. Run by ctest with ROOT.
cmake_minimum_required(VERSION 3.25)
set(listed "")  # by their groups
file(STRINGS ${ROOT}/cmake/packages.txt lines REGEX "^[a-z]")
foreach(line IN LISTS lines)
  string(REGEX MATCH "^([a-z]+) +([^ ]+)$" found "${line}")
  list(APPEND listed ${CMAKE_MATCH_2})
  if(CMAKE_MATCH_1 STREQUAL "build")
    list(APPEND wanted ${CMAKE_MATCH_2})
  endif()
endforeach()
list(REMOVE_ITEM wanted g++)                            # build-essential, which every Debian package has
list(REMOVE_ITEM wanted libgtest-dev libbenchmark-dev)  # packages are built without tests

file(READ ${ROOT}/packaging/debian/control control)
if(NOT control MATCHES "\nBuild-Depends:\n(( [^\n]+\n)+)")
  message(FATAL_ERROR "packaging/debian/control has no Build-Depends with a package a line")
endif()
string(REGEX MATCHALL "\n [^ ,\n]+" depends "\n${CMAKE_MATCH_1}")
list(TRANSFORM depends REPLACE "\n " "")
set(missing ${wanted})
list(REMOVE_ITEM missing ${depends})
if(missing)
  message(SEND_ERROR "packaging/debian/control does not name ${missing}, which cmake/packages.txt has for the build")
endif()
set(others ${depends})
list(REMOVE_ITEM others ${listed} debhelper-compat dh-sequence-python3)  # of debhelper, and of dh-python
if(others)
  message(SEND_ERROR "packaging/debian/control needs ${others}, which cmake/packages.txt does not have")
endif()
