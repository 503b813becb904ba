// Package request reads what a pod asks for, in HAMi's dialect (metax-tech.com/*)
// and Koordinator's (koordinator.sh/*): [Read] turns a pod into a [PodRequest] or
// returns, problem by problem, what to write instead. [ApplyDefaults] writes on a
// pod what both dialects leave out.
package request
