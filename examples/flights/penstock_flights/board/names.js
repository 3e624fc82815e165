// @ts-check
/** Names for the codes in the flights: cities as they fit on a board, and airlines. */

const CITIES = `
ABQ Albuquerque|ACK Nantucket|ALB Albany|ANC Anchorage|ATL Atlanta|AUS Austin|AVL Asheville|BDL Hartford|BGR Bangor
BHM Birmingham|BNA Nashville|BOS Boston|BQN Aguadilla|BTV Burlington|BUF Buffalo|BUR Burbank|BWI Baltimore|BZN Bozeman
CAE Columbia|CAK Akron|CHO Charlottesv.|CHS Charleston SC|CLE Cleveland|CLT Charlotte|CMH Columbus|CRW Charleston WV
CVG Cincinnati|DAY Dayton|DCA Washington|DEN Denver|DFW Dallas|DSM Des Moines|DTW Detroit|EGE Vail|EWR Newark
EYW Key West|FLL Fort Lauderd.|GRR Grand Rapids|GSO Greensboro|GSP Greenville|HDN Steamboat|HNL Honolulu|HOU Houston Hby
IAD Wash. Dulles|IAH Houston|ILM Wilmington|IND Indianapolis|JAC Jackson Hole|JAX Jacksonville|JFK New York JFK
LAS Las Vegas|LAX Los Angeles|LEX Lexington|LGA LaGuardia|LGB Long Beach|MCI Kansas City|MCO Orlando|MDW Chicago Mdw
MEM Memphis|MHT Manchester|MIA Miami|MKE Milwaukee|MSN Madison|MSP Minneapolis|MSY New Orleans|MTJ Montrose
MVY Marthas Vin.|MYR Myrtle Beach|OAK Oakland|OKC Oklahoma City|OMA Omaha|ORD Chicago|ORF Norfolk|PBI Palm Beach
PDX Portland OR|PHL Philadelphia|PHX Phoenix|PIT Pittsburgh|PSE Ponce|PSP Palm Springs|PVD Providence|PWM Portland ME
RDU Raleigh|RIC Richmond|ROC Rochester|RSW Fort Myers|SAN San Diego|SAT San Antonio|SAV Savannah|SBN South Bend
SDF Louisville|SEA Seattle|SFO San Francisco|SJC San Jose|SJU San Juan|SLC Salt Lake C.|SMF Sacramento|SNA Santa Ana
SRQ Sarasota|STL St. Louis|STT St. Thomas|SYR Syracuse|TPA Tampa|TUL Tulsa|TVC Traverse City|TYS Knoxville|XNA Bentonville`;

const CITY = new Map(
  CITIES.trim()
    .split(/[|\n]/)
    .map((entry) => /** @type {[string, string]} */ ([entry.slice(0, 3), entry.slice(4)])),
);

/** The airlines of the data, by code. */
export const AIRLINES = Object.freeze({
  "9E": "Endeavor Air",
  AA: "American",
  AS: "Alaska",
  B6: "JetBlue",
  DL: "Delta",
  EV: "ExpressJet",
  F9: "Frontier",
  FL: "AirTran",
  HA: "Hawaiian",
  MQ: "Envoy Air",
  OO: "SkyWest",
  UA: "United",
  US: "US Airways",
  VX: "Virgin America",
  WN: "Southwest",
  YV: "Mesa",
});

/**
 * The city of an airport, in at most 13 letters.
 *
 * @param {string} code
 */
export function city(code) {
  return CITY.get(code) ?? code;
}
